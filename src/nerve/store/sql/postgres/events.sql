-- name: insert_events
INSERT INTO events (run, seq, at, type, path, settles, data, hash)
SELECT run, seq, at, type, path, settles, data, hash
FROM json_to_recordset(%s::json) AS new (
    run text, seq bigint, at double precision, type text, path text, settles text, data text, hash bytea
);

-- name: select_ends
SELECT DISTINCT ON (run) run, seq, hash FROM events
WHERE run = ANY(%s) ORDER BY run, seq DESC;

-- name: select_settled
SELECT settles, seq FROM events WHERE run = %s AND settles = ANY(%s) ORDER BY seq LIMIT 1;

-- name: select_deleted
SELECT run FROM deletions WHERE run = ANY(%s);

-- name: select_events
SELECT seq, at, type, path, settles, data, emptied, hash, known.last
FROM (SELECT (SELECT seq FROM runs WHERE run = %(run)s) AS last) AS known -- one row, also without events
LEFT JOIN events ON run = %(run)s AND seq <= %(last)s
    -- The chain continues from the event before, also if the journal ends there.
    AND seq >= coalesce((SELECT max(seq) FROM events WHERE run = %(run)s AND seq <= %(after)s), 0)
    AND NOT EXISTS (SELECT 1 FROM deletions WHERE deletions.run = %(run)s)
ORDER BY seq;

-- name: select_last
SELECT seq FROM events
WHERE run = %(run)s AND (%(type)s::text IS NULL OR type = %(type)s)
    AND NOT EXISTS (SELECT 1 FROM deletions WHERE deletions.run = events.run)
ORDER BY seq DESC LIMIT 1;

-- name: select_type
SELECT type, emptied IS NOT NULL FROM events WHERE run = %s AND seq = %s;

-- name: empty_event
UPDATE events SET emptied = sha256(convert_to(data, 'UTF8')), data = '{}'
WHERE run = %s AND seq = %s AND emptied IS NULL;

-- name: select_size
SELECT count(*), coalesce(sum(octet_length(data)), 0)::bigint FROM events WHERE run = %s;

-- name: select_old_events
SELECT seq, octet_length(data) FROM events
WHERE run = %s AND type = %s AND at < %s AND emptied IS NULL AND data <> '{}' AND seq > %s
ORDER BY seq LIMIT %s;

-- name: select_last_written
SELECT DISTINCT run FROM (SELECT run FROM events ORDER BY id DESC LIMIT %s) AS last
WHERE NOT EXISTS (SELECT 1 FROM deletions WHERE deletions.run = last.run);

-- name: insert_deletions
INSERT INTO deletions (run)
SELECT run FROM unnest(%s::text[]) AS gone (run)
WHERE EXISTS (SELECT 1 FROM events WHERE events.run = gone.run)
ON CONFLICT DO NOTHING;

-- name: delete_some_events
DELETE FROM events WHERE ctid = ANY(ARRAY(
    SELECT events.ctid FROM deletions JOIN events USING (run) LIMIT %s
));

-- name: delete_deletions
DELETE FROM deletions WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.run = deletions.run);
