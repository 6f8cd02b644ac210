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

-- name: create_version_2
ALTER TABLE runs ADD COLUMN conversation TEXT;
ALTER TABLE runs ADD COLUMN label TEXT;

CREATE INDEX runs_by_conversation ON runs (conversation, started) WHERE conversation IS NOT NULL;
CREATE INDEX runs_by_label ON runs (label, started) WHERE label IS NOT NULL;

CREATE TABLE facts (
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    at REAL NOT NULL,
    asserted_by TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE fact_versions (
    session TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL -- the highest ever used, of facts that are gone too
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    conversation TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    run TEXT,
    PRIMARY KEY (conversation, seq)
) STRICT, WITHOUT ROWID;

CREATE VIEW journal AS
SELECT
    run, seq, at, type, path, settles,
    CASE typeof(data)
        WHEN 'text' THEN data
        ELSE (SELECT CAST(blobs.data AS TEXT) FROM blobs WHERE blobs.hash = events.data)
    END AS data
FROM events;

CREATE VIEW remote_agent_workflow_runs AS
SELECT
    run AS id,
    workflow AS workflow_name,
    conversation AS conversation_id,
    NULL AS codebase_id,
    (
        SELECT count(DISTINCT substr(path, 1, instr(path || '~', '~') - 1)) FROM journal
        WHERE journal.run = runs.run
            AND type IN ('node_completed', 'step_completed')
            AND settles IS NOT NULL
            AND path NOT LIKE '/%/%'
            AND (path NOT LIKE '%~%' OR path LIKE '%~again%') -- a check is no step, another try is the same
            AND data ->> '$.success'
    ) AS current_step_index,
    CASE
        WHEN state = 'completed' THEN 'completed'
        WHEN state IN ('failed', 'cancelled') THEN 'failed'
        ELSE 'running'
    END AS status,
    (
        SELECT CAST(data ->> '$.input' AS TEXT) FROM journal
        WHERE journal.run = runs.run AND seq = 1 AND type = 'workflow_started'
    ) AS user_message,
    CASE
        WHEN state IN ('failed', 'cancelled') THEN json_object('error', coalesce(
            (
                SELECT nullif(ifnull(data ->> '$.error', data ->> '$.reason'), '') FROM journal
                WHERE journal.run = runs.run AND type = 'workflow_' || state
                ORDER BY seq DESC LIMIT 1
            ),
            state
        ))
        ELSE '{}'
    END AS metadata,
    strftime('%Y-%m-%dT%H:%M:%fZ', started, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended, 'unixepoch') AS completed_at
FROM runs;

-- name: create_version_3
CREATE TABLE resumes (
    run TEXT NOT NULL PRIMARY KEY,
    times INTEGER NOT NULL -- that it was about to be taken up, since that last went well
) STRICT, WITHOUT ROWID;

CREATE INDEX events_with_blobs ON events (data) WHERE typeof(data) = 'blob' AND length(data) = 32;

-- name: create_version_4
CREATE TABLE replies (
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    at REAL NOT NULL,
    asked TEXT NOT NULL,
    reply TEXT NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- name: create_version_5
CREATE TABLE deletions (
    run TEXT NOT NULL PRIMARY KEY -- it is gone already, but for some of its events
) STRICT, WITHOUT ROWID;

-- name: create_version_6
CREATE INDEX runs_by_start ON runs (session, started);

DROP INDEX runs_by_state;
CREATE INDEX runs_by_state ON runs (state, session, started);

-- name: application_id
PRAGMA application_id;

-- name: user_version
PRAGMA user_version;

-- name: count_tables
SELECT count(*) FROM sqlite_schema;
