-- From format 3 to 4: sessions of other agents, read from their logs. What is there is ours.
ALTER TABLE session ADD COLUMN origin TEXT;
ALTER TABLE call ADD COLUMN foreign_id TEXT;
CREATE UNIQUE INDEX call_foreign ON call (session, foreign_id) WHERE foreign_id IS NOT NULL;
CREATE TABLE summary (session TEXT PRIMARY KEY REFERENCES session(id), cells TEXT NOT NULL) WITHOUT ROWID;
CREATE TRIGGER call_added AFTER INSERT ON call WHEN NEW.foreign_id IS NULL BEGIN DELETE FROM summary WHERE session = NEW.session; END;
CREATE TRIGGER call_changed AFTER UPDATE ON call WHEN NEW.foreign_id IS NULL BEGIN DELETE FROM summary WHERE session = NEW.session; END;
CREATE TRIGGER call_removed AFTER DELETE ON call WHEN OLD.foreign_id IS NULL BEGIN DELETE FROM summary WHERE session = OLD.session; END;

-- Warnings of budgets.
CREATE TABLE warned (
    session    TEXT NOT NULL REFERENCES session(id),
    scope      TEXT NOT NULL,
    since      REAL NOT NULL,
    limit_usd  TEXT NOT NULL,
    PRIMARY KEY (session, scope, since, limit_usd)
) WITHOUT ROWID;
