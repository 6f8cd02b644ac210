-- name: create_version_1
CREATE TABLE owners (
    session text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL, -- of the last process that claimed the session: all others are refused
    owner text NOT NULL, -- the process, as messages name it
    last_commit bigint NOT NULL -- the number of the last commit of this epoch, to learn if a lost commit took place
);

CREATE TABLE leases (
    session text COLLATE "C" PRIMARY KEY,
    renewed timestamptz NOT NULL, -- the owner is alive while this is recent
    address text NOT NULL -- of the owner's server; empty if it has none
);

CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY,
    run text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    at double precision NOT NULL,
    type text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    settles text COLLATE "C",
    data text COLLATE "C" NOT NULL,
    emptied bytea, -- the digest of the data before it was emptied
    hash bytea NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE UNIQUE INDEX events_settled ON events (run, settles) WHERE settles IS NOT NULL;
CREATE INDEX events_by_id ON events (id);

CREATE TABLE runs (
    run text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    started double precision NOT NULL,
    ended double precision,
    key text COLLATE "C",
    parent text COLLATE "C",
    wake double precision,
    definition text COLLATE "C",
    conversation text COLLATE "C",
    label text COLLATE "C",
    summary text COLLATE "C",
    seq bigint NOT NULL -- the last event when the row was written: a journal that ends before it lost its end
);

CREATE UNIQUE INDEX runs_by_key ON runs (session, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_state ON runs (session, state, started, run);
CREATE INDEX runs_by_start ON runs (session, started, run);
CREATE INDEX runs_by_conversation ON runs (conversation, started) WHERE conversation IS NOT NULL;
CREATE INDEX runs_by_label ON runs (label, started) WHERE label IS NOT NULL;

CREATE TABLE run_counts (
    session text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL, -- empty for runs without one
    state text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    since double precision NOT NULL, -- when the first of them was started
    PRIMARY KEY (session, definition, state)
);

CREATE FUNCTION count_inserted_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_counts (session, definition, state, number, since)
    SELECT session, coalesce(definition, ''), state, count(*), min(started)
    FROM new_runs GROUP BY 1, 2, 3
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = run_counts.number + excluded.number,
        since = CASE run_counts.number
            WHEN 0 THEN excluded.since
            ELSE least(run_counts.since, excluded.since)
        END;
    RETURN NULL;
END
$$;

CREATE FUNCTION count_updated_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_counts (session, definition, state, number, since)
    SELECT session, definition, state, sum(change), coalesce(min(started) FILTER (WHERE change > 0), 0)
    FROM (
        SELECT session, coalesce(definition, '') AS definition, state, -1 AS change, started FROM old_runs
        UNION ALL
        SELECT session, coalesce(definition, ''), state, 1, started FROM new_runs
    ) AS changes
    GROUP BY 1, 2, 3 HAVING sum(change) <> 0
    ON CONFLICT (session, definition, state) DO UPDATE SET
        number = run_counts.number + excluded.number,
        since = CASE
            WHEN excluded.number < 0 THEN run_counts.since
            WHEN run_counts.number = 0 THEN excluded.since
            ELSE least(run_counts.since, excluded.since)
        END;
    RETURN NULL;
END
$$;

CREATE FUNCTION count_deleted_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE run_counts SET number = run_counts.number - gone.number
    FROM (
        SELECT session, coalesce(definition, '') AS definition, state, count(*) AS number
        FROM old_runs GROUP BY 1, 2, 3
    ) AS gone
    WHERE (run_counts.session, run_counts.definition, run_counts.state)
        = (gone.session, gone.definition, gone.state);
    RETURN NULL;
END
$$;

CREATE TRIGGER count_new_runs AFTER INSERT ON runs
REFERENCING NEW TABLE AS new_runs
FOR EACH STATEMENT EXECUTE FUNCTION count_inserted_runs();

CREATE TRIGGER count_changed_runs AFTER UPDATE ON runs
REFERENCING OLD TABLE AS old_runs NEW TABLE AS new_runs
FOR EACH STATEMENT EXECUTE FUNCTION count_updated_runs();

CREATE TRIGGER count_deleted_runs AFTER DELETE ON runs
REFERENCING OLD TABLE AS old_runs
FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_runs();

CREATE TABLE deletions (
    run text COLLATE "C" PRIMARY KEY -- it is gone already, but not all of its events
);

CREATE TABLE definitions (
    hash text COLLATE "C" PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    notation text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    canonical text COLLATE "C" NOT NULL
);

CREATE TABLE tags (
    run text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    started double precision NOT NULL, -- when the run was started, by which lists are ordered
    PRIMARY KEY (run, kind, name)
);

CREATE INDEX tags_by_value ON tags (session, kind, name, value, started);

CREATE TABLE patches (
    session text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    since double precision NOT NULL, -- when a run of the workflow evaluated the patch first
    PRIMARY KEY (session, name, workflow)
);

CREATE TABLE waits (
    run text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    since double precision NOT NULL,
    data text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, path)
);

CREATE INDEX waits_by_time ON waits (session, kind, since, run, path);

CREATE TABLE usage (
    session text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    amount numeric NOT NULL, -- without decimal places for an integer
    PRIMARY KEY (session, day, model, name)
);

CREATE TABLE step_usage (
    session text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    step text COLLATE "C" NOT NULL, -- empty for what concerns whole runs
    model text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    amount numeric NOT NULL,
    PRIMARY KEY (session, day, workflow, step, model, name)
);

CREATE TABLE facts (
    session text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    at double precision NOT NULL,
    asserted_by text COLLATE "C" NOT NULL,
    label text COLLATE "C", -- the first item of the record, if it is a text
    record text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, id)
);

CREATE INDEX facts_by_version ON facts (session, version);

CREATE TABLE fact_versions (
    session text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL -- the highest ever used, of facts that are gone too
);

CREATE TABLE messages (
    conversation text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    at double precision NOT NULL,
    role text COLLATE "C" NOT NULL,
    text bytea NOT NULL, -- UTF-8: messages may have zero bytes, which `text` cannot hold
    run text COLLATE "C",
    PRIMARY KEY (conversation, seq)
);

CREATE TABLE replies (
    session text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at double precision NOT NULL,
    asked text COLLATE "C" NOT NULL,
    reply text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, key)
);

CREATE TABLE resumes (
    run text COLLATE "C" PRIMARY KEY,
    times bigint NOT NULL -- that it was about to be resumed without making progress
);

CREATE TABLE properties (
    name text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);

-- Refuses the transaction of a process that does not own the session any more, and numbers the others.
CREATE FUNCTION note_commit(owned text, held bigint, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE owners SET last_commit = number WHERE session = owned AND epoch = held;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process owns the session' USING ERRCODE = 'NV001';
    END IF;
END
$$;

-- Returns the input in the data of a first event, as it was stored; null if it has none.
CREATE FUNCTION input_text(data text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN data::json ->> 'input';
EXCEPTION WHEN data_exception THEN
    RETURN NULL; -- an encoded payload
END
$$;

-- name: create_version_2
CREATE TABLE event_sources (
    run text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL, -- empty for the body of the run, otherwise an attempt of one of its steps
    number bigint NOT NULL, -- of the event in its source: what is written again is left out
    seq bigint NOT NULL, -- of the event in the journal
    PRIMARY KEY (run, source, number)
);

CREATE TABLE step_attempts (
    run text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    request bigint NOT NULL,
    attempt bigint NOT NULL, -- the only one that may write; none when the step has ended
    PRIMARY KEY (run, path)
);

CREATE TABLE payloads (
    hash text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL
);

CREATE TABLE payload_uses (
    run text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL REFERENCES payloads,
    PRIMARY KEY (run, hash)
);

CREATE INDEX payload_uses_by_hash ON payload_uses (hash);

-- name: create_version_3
CREATE TABLE provider_slots (
    session text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    slot text COLLATE "C" NOT NULL,
    expires timestamptz NOT NULL, -- unless the process that holds it renews it
    PRIMARY KEY (session, provider, slot)
);

CREATE TABLE provider_limits (
    session text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    until double precision NOT NULL, -- 0 if the limit has ended
    PRIMARY KEY (session, provider)
);

-- name: create_version_4
ALTER TABLE leases DROP COLUMN address;

CREATE TABLE stream_identity (
    id text COLLATE "C" NOT NULL -- a cursor has it: ids of events in a copy of these tables are other ones
);

INSERT INTO stream_identity VALUES (replace(gen_random_uuid()::text, '-', ''));

CREATE TABLE commands (
    id text COLLATE "C" PRIMARY KEY, -- the idempotency key of a command without one
    session text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    arguments text COLLATE "C" NOT NULL,
    caller text COLLATE "C" NOT NULL, -- who asked for it, and at which server
    sent timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline timestamptz NOT NULL, -- no process begins it after this time
    begun timestamptz, -- when an owner began it first; the next owner repeats it if there is no reply
    reply text COLLATE "C"
);

CREATE INDEX commands_without_reply ON commands (session, sent) WHERE reply IS NULL;

-- Refuses the transaction of a process that does not own the session any more, and numbers the others.
CREATE OR REPLACE FUNCTION note_commit(owned text, held bigint, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE owners SET last_commit = number WHERE session = owned AND epoch = held;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process owns the session' USING ERRCODE = 'NV001';
    END IF;
    PERFORM pg_notify('nerve', current_schema() || '/' || owned || '/events');
END
$$;

-- name: create_version_5
CREATE TABLE fact_watches (
    run text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL, -- of a wait of the run
    session text COLLATE "C" NOT NULL,
    family text COLLATE "C" NOT NULL, -- the run whose workflow executes the run
    patterns text COLLATE "C" NOT NULL,
    keys text[] COLLATE "C" NOT NULL, -- a fact that matches has one of them
    match text COLLATE "C", -- the first fact that matched; its run has to be told before the row is deleted
    matched timestamptz,
    PRIMARY KEY (run, path)
);

CREATE INDEX fact_watches_by_key ON fact_watches USING gin (keys) WHERE match IS NULL;
CREATE INDEX fact_watches_matched ON fact_watches (session, matched) WHERE match IS NOT NULL;

-- name: create_version_6
CREATE TABLE budget_reservations (
    run text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL, -- of a step that has not ended: then its usage is in another table
    session text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    used text COLLATE "C" NOT NULL, -- by the step so far
    reserved text COLLATE "C" NOT NULL, -- for its current turn
    expires timestamptz NOT NULL, -- the reservation, unless the worker of the step renews it
    PRIMARY KEY (run, path)
);

CREATE INDEX budget_reservations_by_day ON budget_reservations (session, day);

-- name: create_version_7
CREATE TABLE queue_entries (
    number bigint GENERATED ALWAYS AS IDENTITY, -- orders entries that arrived at the same time
    run text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL, -- of a step; empty for the run itself
    session text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL, -- what the queue counts by; empty without such a value
    family text COLLATE "C" NOT NULL, -- the run whose workflow executes the run
    priority bigint NOT NULL,
    arrived double precision NOT NULL,
    concurrency bigint, -- the limits of the queue, as the worker knows them that sent the entry
    rate_limit bigint,
    rate_seconds double precision,
    asked bigint NOT NULL, -- grows with each request for the slot: an older one that is removed late stays
    granted timestamptz, -- when it got its slot; null while it waits
    is_told boolean NOT NULL DEFAULT false, -- whether its run knows that it has the slot
    PRIMARY KEY (run, path)
);

CREATE INDEX queue_entries_by_lane ON queue_entries (session, queue, key);

CREATE TABLE queue_starts (
    session text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL -- of a slot that counts against the rate
);

CREATE INDEX queue_starts_by_lane ON queue_starts (session, queue, key, at);

-- name: create_version_8
CREATE TABLE people (
    session text COLLATE "C" NOT NULL,
    number bigint NOT NULL, -- of the change; the last one of a name has the person as they are now
    at double precision NOT NULL,
    name text COLLATE "C" NOT NULL,
    data text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, number)
);

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: select_schema
SELECT 1 FROM pg_namespace WHERE nspname = %s;

-- name: lock_schema
SELECT pg_advisory_xact_lock(1315271286, hashtext(%s));

-- name: select_version_table
SELECT to_regclass('store_version') IS NOT NULL;

-- name: create_version_table
CREATE TABLE store_version (version bigint NOT NULL);
INSERT INTO store_version VALUES (0);

-- name: select_version
SELECT version FROM store_version;

-- name: update_version
UPDATE store_version SET version = %s;

-- name: count_tables
SELECT count(*) FROM pg_tables WHERE schemaname = current_schema();

-- name: select_unsafe_settings
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off';

-- name: select_server
SELECT format(
    'PostgreSQL %s, synchronous_commit is %s', split_part(current_setting('server_version'), ' ', 1),
    current_setting('synchronous_commit')
);
