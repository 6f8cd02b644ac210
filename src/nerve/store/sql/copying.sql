-- name: select_copied_events
SELECT
    run, seq, hash, at, type, path, settles, data, first_at, first_type, first_path, first_settles, first_data,
    -- The hash of the first of two events is that of the event before, continued.
    CASE WHEN first_type IS NOT NULL THEN (
        SELECT earlier.hash FROM events AS earlier
        WHERE earlier.journal = events.journal AND earlier.seq = events.seq - 2
    ) END
FROM events CROSS JOIN journals ON journals.id = journal
WHERE journal NOT IN (SELECT deletions.journal FROM deletions)
ORDER BY events.id;

-- name: select_copied_journals
SELECT journals.id, run, runs.seq FROM journals LEFT JOIN runs USING (id)
WHERE journals.id NOT IN (SELECT journal FROM deletions)
ORDER BY journals.id;

-- name: insert_copied_journal
INSERT INTO journals (run) VALUES (?) RETURNING id;

-- name: insert_copied_event
INSERT INTO events (journal, seq, hash, at, type, path, settles, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: select_copied_runs
SELECT
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
FROM runs JOIN journals USING (id) ORDER BY run;

-- name: insert_copied_runs
INSERT INTO runs (
    id, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: select_copied_definitions
SELECT hash, workflow, notation, source, canonical FROM definitions ORDER BY hash;

-- name: insert_copied_definitions
INSERT INTO definitions (hash, workflow, notation, source, canonical) VALUES (?, ?, ?, ?, ?);

-- name: select_copied_tags
SELECT run, kind, name, value, session, started FROM tags JOIN journals USING (id) ORDER BY run, kind, name;

-- name: insert_copied_tags
INSERT INTO tags (id, kind, name, value, session, started) VALUES (?, ?, ?, ?, ?, ?);

-- name: select_copied_patches
SELECT session, name, workflow, since FROM patches ORDER BY session, name, workflow;

-- name: insert_copied_patches
INSERT INTO patches (session, name, workflow, since) VALUES (?, ?, ?, ?);

-- name: select_copied_waits
SELECT run, path, session, kind, since, data FROM waits ORDER BY run, path;

-- name: insert_copied_waits
INSERT INTO waits (run, path, session, kind, since, data) VALUES (?, ?, ?, ?, ?, ?);

-- name: select_copied_facts
SELECT session, id, version, at, asserted_by, record FROM facts ORDER BY session, id;

-- name: insert_copied_facts
INSERT INTO facts (session, id, version, at, asserted_by, record) VALUES (?, ?, ?, ?, ?, ?);

-- name: select_copied_fact_versions
SELECT session, version FROM fact_versions ORDER BY session;

-- name: insert_copied_fact_versions
INSERT INTO fact_versions (session, version) VALUES (?, ?);

-- name: select_copied_replies
SELECT session, key, at, asked, reply FROM replies ORDER BY session, key;

-- name: insert_copied_replies
INSERT INTO replies (session, key, at, asked, reply) VALUES (?, ?, ?, ?, ?);

-- name: select_copied_messages
SELECT conversation, seq, at, role, text, run FROM messages ORDER BY conversation, seq;

-- name: insert_copied_messages
INSERT INTO messages (conversation, seq, at, role, text, run) VALUES (?, ?, ?, ?, ?, ?);

-- name: select_copied_people
SELECT session, number, at, name, data, hash FROM people ORDER BY session, number;

-- name: insert_copied_people
INSERT INTO people (session, number, at, name, data, hash) VALUES (?, ?, ?, ?, ?, ?);

-- name: select_copied_usage
SELECT session, day, model, name, amount FROM usage ORDER BY session, day, model, name;

-- name: insert_copied_usage
INSERT INTO usage (session, day, model, name, amount) VALUES (?, ?, ?, ?, ?);

-- name: select_copied_step_usage
SELECT session, day, workflow, step, model, name, amount FROM step_usage
ORDER BY session, day, workflow, step, model, name;

-- name: insert_copied_step_usage
INSERT INTO step_usage (session, day, workflow, step, model, name, amount) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: select_copied_resumes
SELECT run, times FROM resumes ORDER BY run;

-- name: insert_copied_resumes
INSERT INTO resumes (run, times) VALUES (?, ?);

-- name: select_copied_properties
SELECT name, value FROM properties ORDER BY name;

-- name: delete_properties
DELETE FROM properties;

-- name: insert_copied_properties
INSERT INTO properties (name, value) VALUES (?1, iif(?1 = 'summarized_since', CAST(?2 AS REAL), ?2));

-- name: count_copied
SELECT (SELECT count(*) FROM runs), (SELECT count(*) + count(first_type) FROM events);
