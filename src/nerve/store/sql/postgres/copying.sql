-- name: lock_owners
LOCK TABLE owners IN SHARE ROW EXCLUSIVE MODE;

-- name: select_live_owners
SELECT session, owner FROM owners JOIN leases USING (session)
WHERE renewed >= clock_timestamp() - make_interval(secs => %s)
ORDER BY session;

-- name: has_rows
SELECT EXISTS (SELECT FROM events) OR EXISTS (SELECT FROM runs) OR EXISTS (SELECT FROM definitions)
    OR EXISTS (SELECT FROM facts) OR EXISTS (SELECT FROM fact_versions) OR EXISTS (SELECT FROM messages)
    OR EXISTS (SELECT FROM replies) OR EXISTS (SELECT FROM waits) OR EXISTS (SELECT FROM usage)
    OR EXISTS (SELECT FROM step_usage) OR EXISTS (SELECT FROM tags) OR EXISTS (SELECT FROM patches)
    OR EXISTS (SELECT FROM resumes) OR EXISTS (SELECT FROM deletions);

-- name: select_journals
SELECT events.run, runs.seq, events.seq, at, type, path, settles, data, emptied, hash
FROM events LEFT JOIN runs USING (run)
WHERE NOT EXISTS (SELECT 1 FROM deletions WHERE deletions.run = events.run)
ORDER BY events.run, events.seq;

-- name: select_runs_without_events
SELECT run FROM runs WHERE seq > 0 AND NOT EXISTS (SELECT 1 FROM events WHERE events.run = runs.run);

-- name: select_copied_events
SELECT run, seq, hash, at, type, path, settles, data, emptied FROM events
WHERE NOT EXISTS (SELECT 1 FROM deletions WHERE deletions.run = events.run)
ORDER BY id;

-- name: insert_copied_events
COPY events (run, seq, hash, at, type, path, settles, data, emptied) FROM STDIN;

-- name: select_copied_runs
SELECT
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
FROM runs ORDER BY run;

-- name: insert_copied_runs
COPY runs (
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
) FROM STDIN;

-- name: select_copied_definitions
SELECT hash, workflow, notation, source, canonical FROM definitions ORDER BY hash;

-- name: insert_copied_definitions
COPY definitions (hash, workflow, notation, source, canonical) FROM STDIN;

-- name: select_copied_tags
SELECT run, kind, name, value, session, started FROM tags ORDER BY run, kind, name;

-- name: insert_copied_tags
COPY tags (run, kind, name, value, session, started) FROM STDIN;

-- name: select_copied_patches
SELECT session, name, workflow, since FROM patches ORDER BY session, name, workflow;

-- name: insert_copied_patches
COPY patches (session, name, workflow, since) FROM STDIN;

-- name: select_copied_waits
SELECT run, path, session, kind, since, data FROM waits ORDER BY run, path;

-- name: insert_copied_waits
COPY waits (run, path, session, kind, since, data) FROM STDIN;

-- name: select_copied_facts
SELECT session, id, version, at, asserted_by, record FROM facts ORDER BY session, id;

-- name: insert_copied_facts
COPY facts (session, id, version, at, asserted_by, record, label) FROM STDIN;

-- name: select_copied_fact_versions
SELECT session, version FROM fact_versions ORDER BY session;

-- name: insert_copied_fact_versions
COPY fact_versions (session, version) FROM STDIN;

-- name: select_copied_replies
SELECT session, key, at, asked, reply FROM replies ORDER BY session, key;

-- name: insert_copied_replies
COPY replies (session, key, at, asked, reply) FROM STDIN;

-- name: select_copied_messages
SELECT conversation, seq, at, role, text, run FROM messages ORDER BY conversation, seq;

-- name: insert_copied_messages
COPY messages (conversation, seq, at, role, text, run) FROM STDIN;

-- name: select_copied_people
SELECT session, number, at, name, data, hash FROM people ORDER BY session, number;

-- name: insert_copied_people
COPY people (session, number, at, name, data, hash) FROM STDIN;

-- name: select_copied_usage
SELECT session, day, model, name, amount FROM usage ORDER BY session, day, model, name;

-- name: insert_copied_usage
COPY usage (session, day, model, name, amount) FROM STDIN;

-- name: select_copied_step_usage
SELECT session, day, workflow, step, model, name, amount FROM step_usage
ORDER BY session, day, workflow, step, model, name;

-- name: insert_copied_step_usage
COPY step_usage (session, day, workflow, step, model, name, amount) FROM STDIN;

-- name: select_copied_resumes
SELECT run, times FROM resumes ORDER BY run;

-- name: insert_copied_resumes
COPY resumes (run, times) FROM STDIN;

-- name: select_copied_properties
SELECT name, value FROM (
    SELECT name, value FROM properties
    UNION ALL
    SELECT 'summarized_since', '0.0' WHERE NOT EXISTS (SELECT 1 FROM properties WHERE name = 'summarized_since')
) AS all_properties
ORDER BY name;

-- name: delete_properties
DELETE FROM properties;

-- name: insert_copied_properties
COPY properties (name, value) FROM STDIN;

-- name: count_copied
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events);
