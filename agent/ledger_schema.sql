-- The ledger: one SQLite file for all sessions of a user. Blocks, entries and wire forms are only ever added; a call and a
-- tool run are completed once; a draft goes when its reply is complete. What is rewritten is the latest of its kind:
-- session.told, seen, scale, cached and refusal.

CREATE TABLE session (
    id         TEXT PRIMARY KEY,
    created    REAL NOT NULL,           -- seconds since the epoch, UTC
    directory  TEXT NOT NULL,           -- working directory at the start
    title      TEXT NOT NULL,
    told       TEXT NOT NULL,           -- JSON: the environment as the model was last told (context.notices.Environment)
    parent     TEXT REFERENCES session(id), -- the session that this one was forked from
    forked_at  INTEGER,                 -- blocks that it took over
    forked_epoch INTEGER,               -- of the parent's epoch of that number, which is the fork's first one
    origin     TEXT                     -- the other agent whose log it was read from; NULL: a session of ours
);

-- Content-addressed blocks: equal content is stored once, whatever sessions carry it.
CREATE TABLE block (
    digest     TEXT PRIMARY KEY,
    body       TEXT NOT NULL,           -- canonical JSON (context.block)
    tokens     INTEGER                  -- o200k_base estimate; NULL until it is counted
);

-- The prompts of a session: one for each epoch, append-only within it. The last one is the session's.
CREATE TABLE entry (
    session    TEXT NOT NULL REFERENCES session(id),
    epoch      INTEGER NOT NULL,        -- 0, 1, …
    position   INTEGER NOT NULL,
    digest     TEXT NOT NULL REFERENCES block(digest),
    PRIMARY KEY (session, epoch, position)
) WITHOUT ROWID;

-- Why an epoch began, and what was expected of it (context.epoch). The first one of a session has no row.
CREATE TABLE epoch (
    session    TEXT NOT NULL REFERENCES session(id),
    number     INTEGER NOT NULL,
    started    REAL NOT NULL,
    reason     TEXT NOT NULL,           -- context.epoch.Reason
    tokens_before INTEGER NOT NULL,     -- of the prompt that it replaced, in the model's own tokens
    tokens_after INTEGER NOT NULL,
    as_is_usd  TEXT,                    -- expected cost of going on without it; NULL: unknown
    anew_usd   TEXT,                    -- and with it
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- A block as it went over the wire, per dialect (rule R2).
CREATE TABLE wire (
    digest     TEXT NOT NULL,
    dialect    TEXT NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (digest, dialect)
) WITHOUT ROWID;

-- One row per request to a model. NULL means unknown.
CREATE TABLE call (
    id         INTEGER PRIMARY KEY,
    session    TEXT NOT NULL REFERENCES session(id),
    number     INTEGER NOT NULL,        -- 1, 2, … in the session
    model      TEXT NOT NULL,
    dialect    TEXT NOT NULL,
    started    REAL NOT NULL,
    blocks     INTEGER NOT NULL,        -- length of the prompt that was sent
    prompt     TEXT NOT NULL,           -- its digest
    markers    TEXT NOT NULL,           -- JSON: [[blocks, ttl], …]
    estimate   INTEGER,                 -- the client's own estimate of the input, in the model's tokens
    status     TEXT NOT NULL,           -- open, done, failed, interrupted
    stop       TEXT,
    response   TEXT,                    -- the provider's id
    fresh      INTEGER,
    cache_read INTEGER,
    cache_write INTEGER,
    cache_write_long INTEGER,
    output     INTEGER,
    reasoning  INTEGER,
    cost_usd   TEXT,                    -- decimal
    price      TEXT,                    -- where the price is from, with its date
    ttft_s     REAL,
    duration_s REAL,
    endpoint   TEXT,                    -- the host that was called
    effort     TEXT,                    -- of reasoning; NULL: the model's default
    forecast   TEXT,                    -- JSON, before sending: fresh, cache_read, cache_write, cache_write_long, total, usd
    cause      TEXT,                    -- why not all was read that had been sent before (context.forecast.Cause)
    foreseen   INTEGER,                 -- whether the forecast said so
    missed     INTEGER,                 -- tokens
    since      REAL,                    -- when that came about
    disputed   INTEGER,                 -- whether the provider's own diagnosis says something else
    diagnosis  TEXT,                    -- as the provider spells it
    baseline   INTEGER,                 -- id of the call that it is compared with
    epoch      INTEGER NOT NULL DEFAULT 0,
    turn       INTEGER,                 -- 1, 2, … in the session; NULL: not recorded, or in no turn
    purpose    TEXT NOT NULL DEFAULT 'turn', -- turn, or compaction: a request beside the conversation
    foreign_id TEXT,                    -- what the other agent's log knows it by; NULL: a call of ours
    policy     TEXT,                    -- the settings cache_ttl and keepalive in force: auto/auto; NULL: not recorded
    tier       TEXT,                    -- the provider's word for how it was served; NULL: at standard prices
    UNIQUE (session, number)
);

-- A log that is read again adds nothing.
CREATE UNIQUE INDEX call_foreign ON call (session, foreign_id) WHERE foreign_id IS NOT NULL;

-- Sums of a session's calls that agree in model, price, tier, quarter of an hour, cause and length (agent/cost_record.py).
CREATE TABLE cell (
    session    TEXT NOT NULL REFERENCES session(id),
    model      TEXT NOT NULL,
    price      TEXT,
    tier       TEXT,
    quarter    INTEGER NOT NULL,        -- when it began, seconds since 1970
    cause      TEXT,
    length     INTEGER NOT NULL,        -- how many of the lengths are exceeded above which one model or another costs more
    calls      INTEGER NOT NULL,
    fresh      INTEGER NOT NULL,
    no_fresh   INTEGER NOT NULL,        -- of how many calls it is not known; and so on
    cache_read INTEGER NOT NULL,
    no_cache_read INTEGER NOT NULL,
    write_short INTEGER NOT NULL,
    no_write_short INTEGER NOT NULL,
    write_long INTEGER NOT NULL,
    no_write_long INTEGER NOT NULL,
    output     INTEGER NOT NULL,
    no_output  INTEGER NOT NULL,
    reasoning  INTEGER NOT NULL,
    no_reasoning INTEGER NOT NULL,
    usd        TEXT NOT NULL,           -- decimal: the sum of the known ones
    no_usd     INTEGER NOT NULL,
    missed     INTEGER NOT NULL,
    seconds    REAL NOT NULL
);
CREATE INDEX cell_session ON cell (session);

-- Sessions whose cells are right: none of their calls has changed since. Who reads another agent's log takes a session out
-- once, not once a call.
CREATE TABLE summary (session TEXT PRIMARY KEY REFERENCES session(id)) WITHOUT ROWID;
CREATE TRIGGER call_added AFTER INSERT ON call WHEN NEW.foreign_id IS NULL BEGIN DELETE FROM summary WHERE session = NEW.session; END;
CREATE TRIGGER call_changed AFTER UPDATE ON call WHEN NEW.foreign_id IS NULL BEGIN DELETE FROM summary WHERE session = NEW.session; END;
CREATE TRIGGER call_removed AFTER DELETE ON call WHEN OLD.foreign_id IS NULL BEGIN DELETE FROM summary WHERE session = OLD.session; END;

-- What the providers' caches hold, as far as we know (context.cachemodel.Entry).
CREATE TABLE cached (
    key        TEXT NOT NULL,           -- endpoint, model, effort
    prefix     TEXT NOT NULL,           -- running digest of the prompt
    tokens     INTEGER NOT NULL,
    used       REAL NOT NULL,           -- start of the request that wrote or last read it
    ttl        REAL,                    -- seconds, as granted; NULL: no clock
    written    REAL,                    -- start of the request that wrote it; NULL: not recorded
    PRIMARY KEY (key, prefix)
) WITHOUT ROWID;

-- Calls that only renewed a cached prefix.
CREATE TABLE ping (
    id         INTEGER PRIMARY KEY,
    session    TEXT NOT NULL REFERENCES session(id),
    at         REAL NOT NULL,           -- start of the request
    model      TEXT NOT NULL,
    endpoint   TEXT NOT NULL,
    prompt     TEXT NOT NULL,           -- digest of the prefix
    blocks     INTEGER NOT NULL,
    activity   TEXT NOT NULL,           -- what was waited for
    status     TEXT NOT NULL,           -- done, failed, or cancelled (by a turn; its bill is not known)
    fresh      INTEGER,
    cache_read INTEGER,
    cache_write INTEGER,
    cache_write_long INTEGER,
    cost_usd   TEXT,
    price      TEXT,
    saving_usd TEXT,                    -- what it was expected to save (context.economics); NULL: not recorded
    tier       TEXT                     -- as in call
);

-- When the program waited for its person, which is what their next pauses are expected from (context.pauses).
CREATE TABLE pause (
    id         INTEGER PRIMARY KEY,
    session    TEXT NOT NULL REFERENCES session(id),
    began      REAL NOT NULL,
    ended      REAL,                    -- NULL: nobody has come back yet
    after      TEXT NOT NULL,           -- what it followed: answer, question, failed
    hour       INTEGER NOT NULL         -- local hour in which it began
);

-- Budgets of which a session was warned: once, however often it is gone on with.
CREATE TABLE warned (
    session    TEXT NOT NULL REFERENCES session(id),
    scope      TEXT NOT NULL,           -- session, day
    since      REAL NOT NULL,           -- when the day began; 0 for the session's
    limit_usd  TEXT NOT NULL,
    PRIMARY KEY (session, scope, since, limit_usd)
) WITHOUT ROWID;

-- Cache options that an endpoint has refused: it is not sent them again.
CREATE TABLE refusal (
    endpoint   TEXT NOT NULL,
    option     TEXT NOT NULL,           -- backends.base.CacheOption
    at         REAL NOT NULL,
    PRIMARY KEY (endpoint, option)
) WITHOUT ROWID;

-- Text that has been streamed for a call and is not yet part of a block: what survives a kill in the middle of a reply.
CREATE TABLE draft (
    call       INTEGER NOT NULL REFERENCES call(id),
    position   INTEGER NOT NULL,
    text       TEXT NOT NULL,
    PRIMARY KEY (call, position)
) WITHOUT ROWID;

-- A tool call is marked before it runs and completed with its result, so that it runs at most once (rule R7).
CREATE TABLE tool_run (
    session    TEXT NOT NULL REFERENCES session(id),
    epoch      INTEGER NOT NULL,
    position   INTEGER NOT NULL,        -- of the assistant block that asked for it
    tool_call  TEXT NOT NULL,
    started    REAL NOT NULL,
    finished   REAL,
    text       TEXT,
    is_error   INTEGER,
    PRIMARY KEY (session, epoch, position, tool_call)
) WITHOUT ROWID;

-- Which content of each file the model has seen last (digest), so that a resumed session knows it too.
CREATE TABLE seen (
    session    TEXT NOT NULL REFERENCES session(id),
    path       BLOB NOT NULL,           -- as the file system has it: names need not be UTF-8
    digest     TEXT NOT NULL,
    PRIMARY KEY (session, path)
) WITHOUT ROWID;

-- Provider tokens per o200k_base token, learned from usage (context.tokens.Scale).
CREATE TABLE scale (
    model      TEXT PRIMARY KEY,
    factor     REAL NOT NULL,
    samples    INTEGER NOT NULL
) WITHOUT ROWID;
