-- From format 1 to 2. Calls made before it keep NULL where nothing was recorded: unknown.
ALTER TABLE session ADD COLUMN parent TEXT REFERENCES session(id);
ALTER TABLE session ADD COLUMN forked_at INTEGER;
ALTER TABLE call ADD COLUMN endpoint TEXT;
ALTER TABLE call ADD COLUMN effort TEXT;
ALTER TABLE call ADD COLUMN forecast TEXT;
ALTER TABLE call ADD COLUMN cause TEXT;
ALTER TABLE call ADD COLUMN foreseen INTEGER;
ALTER TABLE call ADD COLUMN missed INTEGER;
ALTER TABLE call ADD COLUMN since REAL;
ALTER TABLE call ADD COLUMN disputed INTEGER;
ALTER TABLE call ADD COLUMN diagnosis TEXT;
ALTER TABLE call ADD COLUMN baseline INTEGER;
CREATE TABLE cached (key TEXT NOT NULL, prefix TEXT NOT NULL, tokens INTEGER NOT NULL, used REAL NOT NULL, ttl REAL,
    PRIMARY KEY (key, prefix)) WITHOUT ROWID;
CREATE TABLE ping (id INTEGER PRIMARY KEY, session TEXT NOT NULL REFERENCES session(id), at REAL NOT NULL, model TEXT NOT NULL,
    endpoint TEXT NOT NULL, prompt TEXT NOT NULL, blocks INTEGER NOT NULL, activity TEXT NOT NULL, status TEXT NOT NULL,
    fresh INTEGER, cache_read INTEGER, cache_write INTEGER, cache_write_long INTEGER, cost_usd TEXT, price TEXT);
CREATE TABLE refusal (endpoint TEXT NOT NULL, option TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (endpoint, option)) WITHOUT ROWID;
