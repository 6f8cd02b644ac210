-- name: create_newest
PRAGMA application_id = 1315271286;

CREATE TABLE journals (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE event_types (
    id INTEGER PRIMARY KEY, -- the number that stands for the type in `events`
    name TEXT NOT NULL UNIQUE
) STRICT;

INSERT INTO event_types (name) VALUES
    ('node_started'), ('node_completed'), ('step_started'), ('step_completed'),
    ('workflow_started'), ('workflow_completed'), ('output_chunk'),
    ('gate_waiting'), ('gate_answered'), ('timer_started'), ('timer_fired');

CREATE TABLE "events" (
    id INTEGER PRIMARY KEY,
    journal INTEGER NOT NULL,
    seq INTEGER NOT NULL, -- of its last event
    at REAL NOT NULL,
    type ANY NOT NULL, -- a number of `event_types`, or the type itself
    path TEXT NOT NULL,
    settles ANY, -- 1 for its own path
    data ANY NOT NULL, -- text, the hash of a blob, or the hash of emptied data after a zero byte
    hash BLOB NOT NULL,
    first_at REAL, -- the first of two events
    first_type ANY,
    first_path TEXT,
    first_settles ANY,
    first_data TEXT
) STRICT;

CREATE UNIQUE INDEX events_by_journal ON events (journal, seq);
CREATE INDEX events_with_blobs ON events (data) WHERE typeof(data) = 'blob' AND length(data) = 32;

CREATE TABLE "runs" (
    id INTEGER PRIMARY KEY, -- of its journal
    session TEXT NOT NULL,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    key TEXT,
    parent TEXT,
    wake REAL,
    definition TEXT,
    conversation TEXT,
    label TEXT,
    summary TEXT,
    seq INTEGER NOT NULL -- the last event when the row was written: a journal that ends before it lost its end
) STRICT;

CREATE UNIQUE INDEX runs_by_key ON runs (session, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_state ON runs (state, session, started);
CREATE INDEX runs_by_start ON runs (session, started);
CREATE INDEX runs_by_conversation ON runs (conversation, started) WHERE conversation IS NOT NULL;
CREATE INDEX runs_by_label ON runs (label, started) WHERE label IS NOT NULL;

CREATE TABLE tags (
    id INTEGER NOT NULL, -- of the journal of the run
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    session TEXT NOT NULL,
    started REAL NOT NULL, -- when the run was started, by which lists are ordered
    PRIMARY KEY (id, kind, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_value ON tags (session, kind, name, value, started);

CREATE TABLE waits (
    run TEXT NOT NULL,
    path TEXT NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    since REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;

CREATE INDEX waits_by_time ON waits (session, kind, since, run, path);

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

CREATE TABLE resumes (
    run TEXT NOT NULL PRIMARY KEY,
    times INTEGER NOT NULL -- that it was about to be taken up, since that last went well
) STRICT, WITHOUT ROWID;

CREATE TABLE replies (
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    at REAL NOT NULL,
    asked TEXT NOT NULL,
    reply TEXT NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE "deletions" (
    journal INTEGER PRIMARY KEY -- its run is gone already, but not all of its events
) STRICT;

CREATE TABLE usage (
    session TEXT NOT NULL,
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    amount ANY NOT NULL,
    PRIMARY KEY (session, day, model, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE step_usage (
    session TEXT NOT NULL,
    day TEXT NOT NULL,
    workflow TEXT NOT NULL,
    step TEXT NOT NULL, -- empty for what concerns whole runs
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    amount ANY NOT NULL,
    PRIMARY KEY (session, day, workflow, step, model, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_counts (
    session TEXT NOT NULL,
    definition TEXT NOT NULL, -- empty for runs without one
    state TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL, -- when the first of them was started
    PRIMARY KEY (session, definition, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE patches (
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    workflow TEXT NOT NULL,
    since REAL NOT NULL, -- when a run of the workflow evaluated the patch first
    PRIMARY KEY (session, name, workflow)
) STRICT, WITHOUT ROWID;

CREATE TABLE people (
    session TEXT NOT NULL,
    number INTEGER NOT NULL, -- of the change; the last one of a name has the person as they are now
    at REAL NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE properties (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The runs of a new file are all written with summaries, waits and usage.
INSERT INTO properties VALUES ('summarized_since', 0.0);

CREATE TRIGGER count_new_run AFTER INSERT ON runs
BEGIN
    INSERT INTO run_counts VALUES (new.session, ifnull(new.definition, ''), new.state, 1, new.started)
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = number + 1,
        since = iif(number = 0, excluded.since, min(since, excluded.since));
END;

CREATE TRIGGER count_changed_run AFTER UPDATE OF session, definition, state ON runs
WHEN (old.session, old.state) <> (new.session, new.state) OR old.definition IS NOT new.definition
BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE session = old.session AND definition = ifnull(old.definition, '') AND state = old.state;
    INSERT INTO run_counts VALUES (new.session, ifnull(new.definition, ''), new.state, 1, new.started)
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = number + 1,
        since = iif(number = 0, excluded.since, min(since, excluded.since));
END;

CREATE TRIGGER count_deleted_run AFTER DELETE ON runs
BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE session = old.session AND definition = ifnull(old.definition, '') AND state = old.state;
END;

CREATE VIEW journal AS
SELECT
    run,
    seq,
    at,
    ifnull((SELECT name FROM event_types WHERE event_types.id = each.type), type) AS type,
    path,
    iif(typeof(settles) = 'integer', path, settles) AS settles,
    CASE
        WHEN typeof(data) <> 'text' THEN
            (SELECT CAST(blobs.data AS TEXT) FROM blobs WHERE blobs.hash = each.data)
        WHEN data LIKE char(1) || '%' THEN
            '{"node_id":"'
            || replace(replace(
                substr(data, 2),
                char(3), '","success":true,"duration_ms":'),
                char(4), ',"result":{"success":true,"output":')
            || ',"attributes":{}}}'
        WHEN data LIKE char(2) || '%' THEN
            '{"node_id":"' || replace(replace(substr(data, 2), char(3), '","hash":"'), char(4), '","input":') || '}'
        ELSE data
    END AS data
FROM (
    SELECT
        run,
        iif(is_first, seq - 1, seq) AS seq,
        iif(is_first, first_at, at) AS at,
        iif(is_first, first_type, type) AS type,
        iif(is_first, first_path, path) AS path,
        iif(is_first, first_settles, settles) AS settles,
        iif(is_first, first_data, data) AS data
    FROM journals
    CROSS JOIN events ON journal = journals.id
    CROSS JOIN (SELECT 1 AS is_first UNION ALL SELECT 0) ON first_type IS NOT NULL OR NOT is_first
) AS each;

CREATE VIEW remote_agent_workflow_runs AS
SELECT
    journals.run AS id,
    workflow AS workflow_name,
    conversation AS conversation_id,
    NULL AS codebase_id,
    (
        SELECT count(DISTINCT substr(path, 1, instr(path || '~', '~') - 1)) FROM journal
        WHERE journal.run = journals.run
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
        WHERE journal.run = journals.run AND seq = 1 AND type = 'workflow_started'
    ) AS user_message,
    CASE
        WHEN state IN ('failed', 'cancelled') THEN json_object('error', coalesce(
            (
                SELECT nullif(ifnull(data ->> '$.error', data ->> '$.reason'), '') FROM journal
                WHERE journal.run = journals.run AND type = 'workflow_' || state
                ORDER BY seq DESC LIMIT 1
            ),
            state
        ))
        ELSE '{}'
    END AS metadata,
    strftime('%Y-%m-%dT%H:%M:%fZ', started, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended, 'unixepoch') AS completed_at
FROM runs JOIN journals USING (id);

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

-- name: create_version_7
DROP VIEW remote_agent_workflow_runs;
DROP VIEW journal;

CREATE TABLE journals (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE
) STRICT;

INSERT INTO journals (run) SELECT run FROM runs ORDER BY started, run;
INSERT OR IGNORE INTO journals (run) SELECT DISTINCT run FROM events;

CREATE TABLE event_types (
    id INTEGER PRIMARY KEY, -- the number that stands for the type in `events`
    name TEXT NOT NULL UNIQUE
) STRICT;

INSERT INTO event_types (name) VALUES
    ('node_started'), ('node_completed'), ('step_started'), ('step_completed'),
    ('workflow_started'), ('workflow_completed'), ('output_chunk'),
    ('gate_waiting'), ('gate_answered'), ('timer_started'), ('timer_fired');

-- One row is an event, or two that were appended together.
CREATE TABLE new_events (
    id INTEGER PRIMARY KEY,
    journal INTEGER NOT NULL,
    seq INTEGER NOT NULL, -- of its last event
    at REAL NOT NULL,
    type ANY NOT NULL, -- a number of `event_types`, or the type itself
    path TEXT NOT NULL,
    settles ANY, -- 1 for its own path
    data ANY NOT NULL, -- text, the hash of a blob, or the hash of emptied data after a zero byte
    hash BLOB NOT NULL,
    first_at REAL, -- the first of two events
    first_type ANY,
    first_path TEXT,
    first_settles ANY,
    first_data TEXT
) STRICT;

INSERT INTO new_events (journal, seq, at, type, path, settles, data, hash)
SELECT journals.id, seq, at, ifnull(event_types.id, type), path, iif(settles = path, 1, settles), data, hash
FROM journals CROSS JOIN events USING (run) LEFT JOIN event_types ON event_types.name = type
ORDER BY journals.id, seq;

DROP TABLE events;
ALTER TABLE new_events RENAME TO events;
CREATE UNIQUE INDEX events_by_journal ON events (journal, seq);
CREATE INDEX events_with_blobs ON events (data) WHERE typeof(data) = 'blob' AND length(data) = 32;

CREATE TABLE new_runs (
    id INTEGER PRIMARY KEY, -- of its journal
    session TEXT NOT NULL,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    key TEXT,
    parent TEXT,
    wake REAL,
    definition TEXT,
    conversation TEXT,
    label TEXT,
    summary TEXT,
    seq INTEGER NOT NULL -- the last event when the row was written: a journal that ends before it lost its end
) STRICT;

INSERT INTO new_runs
SELECT
    journals.id, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label,
    NULL, seq
FROM journals CROSS JOIN runs USING (run);

DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;
CREATE UNIQUE INDEX runs_by_key ON runs (session, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_state ON runs (state, session, started);
CREATE INDEX runs_by_start ON runs (session, started);
CREATE INDEX runs_by_conversation ON runs (conversation, started) WHERE conversation IS NOT NULL;
CREATE INDEX runs_by_label ON runs (label, started) WHERE label IS NOT NULL;

CREATE TABLE new_deletions (
    journal INTEGER PRIMARY KEY -- its run is gone already, but not all of its events
) STRICT;

INSERT INTO new_deletions SELECT journals.id FROM deletions JOIN journals USING (run);
DROP TABLE deletions;
ALTER TABLE new_deletions RENAME TO deletions;

CREATE VIEW journal AS
SELECT
    run,
    seq,
    at,
    ifnull((SELECT name FROM event_types WHERE event_types.id = each.type), type) AS type,
    path,
    iif(typeof(settles) = 'integer', path, settles) AS settles,
    CASE
        WHEN typeof(data) <> 'text' THEN
            (SELECT CAST(blobs.data AS TEXT) FROM blobs WHERE blobs.hash = each.data)
        WHEN data LIKE char(1) || '%' THEN
            '{"node_id":"'
            || replace(replace(
                substr(data, 2),
                char(3), '","success":true,"duration_ms":'),
                char(4), ',"result":{"success":true,"output":')
            || ',"attributes":{}}}'
        WHEN data LIKE char(2) || '%' THEN
            '{"node_id":"' || replace(replace(substr(data, 2), char(3), '","hash":"'), char(4), '","input":') || '}'
        ELSE data
    END AS data
FROM (
    SELECT
        run,
        iif(is_first, seq - 1, seq) AS seq,
        iif(is_first, first_at, at) AS at,
        iif(is_first, first_type, type) AS type,
        iif(is_first, first_path, path) AS path,
        iif(is_first, first_settles, settles) AS settles,
        iif(is_first, first_data, data) AS data
    FROM journals
    CROSS JOIN events ON journal = journals.id
    CROSS JOIN (SELECT 1 AS is_first UNION ALL SELECT 0) ON first_type IS NOT NULL OR NOT is_first
) AS each;

CREATE VIEW remote_agent_workflow_runs AS
SELECT
    journals.run AS id,
    workflow AS workflow_name,
    conversation AS conversation_id,
    NULL AS codebase_id,
    (
        SELECT count(DISTINCT substr(path, 1, instr(path || '~', '~') - 1)) FROM journal
        WHERE journal.run = journals.run
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
        WHERE journal.run = journals.run AND seq = 1 AND type = 'workflow_started'
    ) AS user_message,
    CASE
        WHEN state IN ('failed', 'cancelled') THEN json_object('error', coalesce(
            (
                SELECT nullif(ifnull(data ->> '$.error', data ->> '$.reason'), '') FROM journal
                WHERE journal.run = journals.run AND type = 'workflow_' || state
                ORDER BY seq DESC LIMIT 1
            ),
            state
        ))
        ELSE '{}'
    END AS metadata,
    strftime('%Y-%m-%dT%H:%M:%fZ', started, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended, 'unixepoch') AS completed_at
FROM runs JOIN journals USING (id);

CREATE TABLE waits (
    run TEXT NOT NULL,
    path TEXT NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    since REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;

CREATE INDEX waits_by_time ON waits (session, kind, since, run, path);

CREATE TABLE usage (
    session TEXT NOT NULL,
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    amount ANY NOT NULL,
    PRIMARY KEY (session, day, model, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_counts (
    session TEXT NOT NULL,
    definition TEXT NOT NULL, -- empty for runs without one
    state TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL, -- when the first of them was started
    PRIMARY KEY (session, definition, state)
) STRICT, WITHOUT ROWID;

INSERT INTO run_counts
SELECT session, ifnull(definition, ''), state, count(*), min(started) FROM runs GROUP BY 1, 2, 3;

CREATE TRIGGER count_new_run AFTER INSERT ON runs
BEGIN
    INSERT INTO run_counts VALUES (new.session, ifnull(new.definition, ''), new.state, 1, new.started)
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = number + 1,
        since = iif(number = 0, excluded.since, min(since, excluded.since));
END;

CREATE TRIGGER count_changed_run AFTER UPDATE OF session, definition, state ON runs
WHEN (old.session, old.state) <> (new.session, new.state) OR old.definition IS NOT new.definition
BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE session = old.session AND definition = ifnull(old.definition, '') AND state = old.state;
    INSERT INTO run_counts VALUES (new.session, ifnull(new.definition, ''), new.state, 1, new.started)
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = number + 1,
        since = iif(number = 0, excluded.since, min(since, excluded.since));
END;

CREATE TRIGGER count_deleted_run AFTER DELETE ON runs
BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE session = old.session AND definition = ifnull(old.definition, '') AND state = old.state;
END;

CREATE TABLE properties (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Runs that are there already were written without summaries, waits and usage.
INSERT INTO properties
SELECT 'summarized_since', iif(EXISTS (SELECT 1 FROM runs), unixepoch('subsec'), 0.0);

-- name: create_version_8
CREATE TABLE tags (
    id INTEGER NOT NULL, -- of the journal of the run
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    session TEXT NOT NULL,
    started REAL NOT NULL, -- when the run was started, by which lists are ordered
    PRIMARY KEY (id, kind, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_value ON tags (session, kind, name, value, started);

CREATE TABLE patches (
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    workflow TEXT NOT NULL,
    since REAL NOT NULL, -- when a run of the workflow evaluated the patch first
    PRIMARY KEY (session, name, workflow)
) STRICT, WITHOUT ROWID;

-- name: create_version_9
CREATE TABLE step_usage (
    session TEXT NOT NULL,
    day TEXT NOT NULL,
    workflow TEXT NOT NULL,
    step TEXT NOT NULL, -- empty for what concerns whole runs
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    amount ANY NOT NULL,
    PRIMARY KEY (session, day, workflow, step, model, name)
) STRICT, WITHOUT ROWID;

-- What was used until now is known by model only.
INSERT INTO properties
SELECT 'step_usage_since', CAST(unixepoch('subsec') AS TEXT) WHERE EXISTS (SELECT 1 FROM usage);

-- name: create_version_10
CREATE TABLE people (
    session TEXT NOT NULL,
    number INTEGER NOT NULL, -- of the change; the last one of a name has the person as they are now
    at REAL NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;

-- name: application_id
PRAGMA application_id;

-- name: user_version
PRAGMA user_version;

-- name: count_tables
SELECT count(*) FROM sqlite_schema;
