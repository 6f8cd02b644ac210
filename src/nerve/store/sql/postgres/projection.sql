-- name: assign_session
INSERT INTO owners (session, epoch, owner, last_commit) VALUES (%(session)s, 1, %(owner)s, 0)
ON CONFLICT (session) DO UPDATE SET epoch = owners.epoch + 1, owner = excluded.owner, last_commit = 0;

-- name: count_open_runs
SELECT count(*) FROM runs WHERE session = %s AND ended IS NULL;

-- name: insert_sources_of_open_runs
INSERT INTO event_sources (run, source, number, seq)
SELECT events.run, '', events.seq, events.seq FROM events JOIN runs ON runs.run = events.run
WHERE runs.session = %s AND runs.ended IS NULL
ON CONFLICT DO NOTHING;

-- name: start_endless_lease
INSERT INTO leases (session, renewed) VALUES (%(session)s, 'infinity')
ON CONFLICT (session) DO UPDATE SET renewed = excluded.renewed;

-- name: lock_assignment
SELECT owner FROM owners WHERE session = %s FOR UPDATE;

-- name: notify_events
SELECT pg_notify('nerve', current_schema() || '/' || %s || '/events');

-- name: select_source_end
SELECT number FROM event_sources WHERE run = %s AND source = %s ORDER BY number DESC LIMIT 1;

-- name: insert_event_sources
INSERT INTO event_sources (run, source, number, seq)
SELECT run, source, number, seq
FROM json_to_recordset(%s::json) AS new (run text, source text, number bigint, seq bigint);

-- name: select_rows_of_source
SELECT seq, number FROM event_sources WHERE run = %s AND source = %s;

-- name: begin_step_attempt
INSERT INTO step_attempts (run, path, request, attempt) VALUES (%(run)s, %(path)s, %(request)s, %(attempt)s)
ON CONFLICT (run, path) DO UPDATE SET request = excluded.request, attempt = excluded.attempt
WHERE (step_attempts.request, step_attempts.attempt) <= (excluded.request, excluded.attempt)
RETURNING 1;

-- name: select_step_attempt
SELECT request, attempt FROM step_attempts WHERE run = %s AND path = %s;

-- name: end_step_attempts
DELETE FROM step_attempts WHERE run = %s AND path = ANY(%s);

-- name: delete_step_attempts
DELETE FROM step_attempts WHERE run = %s;

-- name: insert_payload
INSERT INTO payloads (hash, data) VALUES (%(hash)s, %(data)s) ON CONFLICT DO NOTHING;

-- name: insert_payload_use
INSERT INTO payload_uses (run, hash) VALUES (%(run)s, %(hash)s) ON CONFLICT DO NOTHING;

-- name: select_payload
SELECT data FROM payloads WHERE hash = %s;

-- name: delete_projection_of_runs
WITH uses AS (DELETE FROM payload_uses WHERE run = ANY(%(runs)s) RETURNING hash),
    attempts AS (DELETE FROM step_attempts WHERE run = ANY(%(runs)s)),
    reservations AS (DELETE FROM budget_reservations WHERE run = ANY(%(runs)s)),
    entries AS (DELETE FROM queue_entries WHERE run = ANY(%(runs)s)),
    watches AS (DELETE FROM fact_watches WHERE run = ANY(%(runs)s)),
    sources AS (DELETE FROM event_sources WHERE run = ANY(%(runs)s))
DELETE FROM payloads USING uses
WHERE payloads.hash = uses.hash
    AND NOT EXISTS (
        SELECT 1 FROM payload_uses
        WHERE payload_uses.hash = payloads.hash AND NOT payload_uses.run = ANY(%(runs)s)
    );
