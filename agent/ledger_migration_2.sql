-- From format 2 to 3. What had no epoch is of the first one; what was not recorded stays NULL: unknown.
ALTER TABLE session ADD COLUMN forked_epoch INTEGER;
UPDATE session SET forked_epoch = 0 WHERE parent IS NOT NULL;
ALTER TABLE call ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE call ADD COLUMN turn INTEGER;
ALTER TABLE call ADD COLUMN purpose TEXT NOT NULL DEFAULT 'turn';
ALTER TABLE cached ADD COLUMN written REAL;
ALTER TABLE ping ADD COLUMN saving_usd TEXT;
ALTER TABLE entry RENAME TO entry_2;
CREATE TABLE entry (session TEXT NOT NULL REFERENCES session(id), epoch INTEGER NOT NULL, position INTEGER NOT NULL,
    digest TEXT NOT NULL REFERENCES block(digest), PRIMARY KEY (session, epoch, position)) WITHOUT ROWID;
INSERT INTO entry SELECT session, 0, position, digest FROM entry_2;
DROP TABLE entry_2;
ALTER TABLE tool_run RENAME TO tool_run_2;
CREATE TABLE tool_run (session TEXT NOT NULL REFERENCES session(id), epoch INTEGER NOT NULL, position INTEGER NOT NULL,
    tool_call TEXT NOT NULL, started REAL NOT NULL, finished REAL, text TEXT, is_error INTEGER,
    PRIMARY KEY (session, epoch, position, tool_call)) WITHOUT ROWID;
INSERT INTO tool_run SELECT session, 0, position, tool_call, started, finished, text, is_error FROM tool_run_2;
DROP TABLE tool_run_2;
CREATE TABLE epoch (session TEXT NOT NULL REFERENCES session(id), number INTEGER NOT NULL, started REAL NOT NULL,
    reason TEXT NOT NULL, tokens_before INTEGER NOT NULL, tokens_after INTEGER NOT NULL, as_is_usd TEXT, anew_usd TEXT,
    PRIMARY KEY (session, number)) WITHOUT ROWID;
CREATE TABLE pause (id INTEGER PRIMARY KEY, session TEXT NOT NULL REFERENCES session(id), began REAL NOT NULL, ended REAL,
    after TEXT NOT NULL, hour INTEGER NOT NULL);
