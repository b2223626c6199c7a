-- The checkpoints of one working tree. Their order is one line, whatever sessions took them, because there is one tree.

CREATE TABLE checkpoint (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    session    TEXT NOT NULL,
    turn       INTEGER NOT NULL,
    label      TEXT NOT NULL,           -- before or after (a turn), or what else it was taken for
    at         REAL NOT NULL,           -- seconds since the epoch, UTC
    wall_ns    INTEGER NOT NULL,        -- the system's clock, which is the file system's
    ours       INTEGER NOT NULL         -- whether what changed since the one before was the agent's doing
);
CREATE INDEX checkpoint_session ON checkpoint (session, turn);

-- What became of a path, and at which checkpoint that was seen first. A tree at a checkpoint is the last of each until then.
CREATE TABLE version (
    path       BLOB NOT NULL,           -- as the file system has it: names need not be UTF-8
    since      INTEGER NOT NULL,
    kind       TEXT,                    -- NULL: it was not there any more
    mode       INTEGER,
    digest     TEXT,
    PRIMARY KEY (path, since)
) WITHOUT ROWID;
CREATE INDEX version_since ON version (since);

-- The tree at the last checkpoint, and the state of each file then, so that what has not changed is not read again.
CREATE TABLE present (
    path       BLOB PRIMARY KEY,
    kind       TEXT NOT NULL,
    mode       INTEGER NOT NULL,
    digest     TEXT NOT NULL,
    state      TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE content (
    digest     TEXT PRIMARY KEY,
    body       BLOB NOT NULL            -- compressed
);

-- Turns whose files have been put back.
CREATE TABLE undone (
    session    TEXT NOT NULL,
    turn       INTEGER NOT NULL,
    checkpoint INTEGER NOT NULL,        -- as it was just before
    redoable   INTEGER NOT NULL,
    partial    INTEGER NOT NULL,        -- whether files were left because somebody had changed them
    PRIMARY KEY (session, turn)
) WITHOUT ROWID;

-- The restore that is under way, if there is one: what a kill leaves open is finished later.
CREATE TABLE restore (
    token      TEXT PRIMARY KEY,        -- in the names of files on the way to their place
    target     INTEGER NOT NULL
);
CREATE TABLE step (
    path       BLOB PRIMARY KEY,
    number     INTEGER NOT NULL,
    kind       TEXT, mode INTEGER, digest TEXT,             -- as it shall be
    was_kind   TEXT, was_mode INTEGER, was_digest TEXT      -- as it was when that was decided
) WITHOUT ROWID;
