-- From format 3 to 4: sessions of other agents, read from their logs. What is there is ours.
ALTER TABLE session ADD COLUMN origin TEXT;
ALTER TABLE call ADD COLUMN foreign_id TEXT;
ALTER TABLE call ADD COLUMN policy TEXT;
ALTER TABLE call ADD COLUMN tier TEXT;
ALTER TABLE ping ADD COLUMN tier TEXT;
CREATE UNIQUE INDEX call_foreign ON call (session, foreign_id) WHERE foreign_id IS NOT NULL;
CREATE TABLE cell (session TEXT NOT NULL REFERENCES session(id), model TEXT NOT NULL, price TEXT, tier TEXT, quarter INTEGER NOT NULL, cause TEXT, length INTEGER NOT NULL, calls INTEGER NOT NULL, fresh INTEGER NOT NULL, no_fresh INTEGER NOT NULL, cache_read INTEGER NOT NULL, no_cache_read INTEGER NOT NULL, write_short INTEGER NOT NULL, no_write_short INTEGER NOT NULL, write_long INTEGER NOT NULL, no_write_long INTEGER NOT NULL, output INTEGER NOT NULL, no_output INTEGER NOT NULL, reasoning INTEGER NOT NULL, no_reasoning INTEGER NOT NULL, usd TEXT NOT NULL, no_usd INTEGER NOT NULL, missed INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE INDEX cell_session ON cell (session);
CREATE TABLE summary (session TEXT PRIMARY KEY REFERENCES session(id)) WITHOUT ROWID;
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
