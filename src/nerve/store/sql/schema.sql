-- name: create_version_1
PRAGMA application_id = 1315271286;

CREATE TABLE events (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    type TEXT NOT NULL,
    path TEXT NOT NULL,
    settles TEXT,
    data ANY NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX events_settled ON events (run, settles) WHERE settles IS NOT NULL;

CREATE TABLE runs (
    run TEXT NOT NULL PRIMARY KEY,
    session TEXT NOT NULL,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    key TEXT,
    parent TEXT,
    wake REAL,
    definition TEXT,
    seq INTEGER NOT NULL -- the last event when the row was written: a journal that ends before it lost its end
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX runs_by_key ON runs (session, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_state ON runs (state, session);

CREATE TABLE definitions (
    hash TEXT NOT NULL PRIMARY KEY,
    workflow TEXT NOT NULL,
    notation TEXT NOT NULL,
    source TEXT NOT NULL,
    canonical TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    hash BLOB NOT NULL PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- name: application_id
PRAGMA application_id;

-- name: user_version
PRAGMA user_version;

-- name: count_tables
SELECT count(*) FROM sqlite_schema;
