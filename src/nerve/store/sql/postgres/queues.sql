-- name: insert_queue_entry
INSERT INTO queue_entries (
    run, path, session, queue, key, family, priority, arrived, concurrency, rate_limit, rate_seconds, asked
)
SELECT
    %(run)s, %(path)s, %(session)s, %(queue)s, %(key)s, %(family)s, %(priority)s, %(arrived)s,
    %(concurrency)s, %(rate_limit)s, %(rate_seconds)s, %(asked)s
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run = %(run)s AND ended IS NOT NULL)
ON CONFLICT (run, path) DO UPDATE SET
    family = excluded.family,
    concurrency = excluded.concurrency,
    rate_limit = excluded.rate_limit,
    rate_seconds = excluded.rate_seconds,
    asked = greatest(queue_entries.asked, excluded.asked);

-- name: delete_queue_entries_elsewhere
DELETE FROM queue_entries
WHERE run = %(run)s AND path = %(path)s AND (queue, key) <> (%(queue)s, %(key)s)
RETURNING queue, key;

-- name: delete_queue_entry
DELETE FROM queue_entries WHERE run = %s AND path = %s AND asked <= %s RETURNING queue, key;

-- name: delete_queue_entries_of_family
DELETE FROM queue_entries WHERE session = %s AND family = %s RETURNING queue, key;

-- name: delete_queue_entries_of_runs
DELETE FROM queue_entries WHERE run = ANY(%s);

-- name: tell_queue_entry
UPDATE queue_entries SET is_told = true WHERE run = %s AND path = %s AND granted IS NOT NULL RETURNING 1;

-- name: select_waiting_lanes
SELECT DISTINCT queue, key FROM queue_entries WHERE session = %s AND granted IS NULL;

-- name: count_queue_holders
SELECT count(*) FROM queue_entries
WHERE session = %(session)s AND queue = %(queue)s AND key = %(key)s AND granted IS NOT NULL;

-- name: select_next_queue_entry
SELECT run, path, queue, key, family, priority, arrived, concurrency, rate_limit, rate_seconds, asked
FROM queue_entries
WHERE session = %(session)s AND queue = %(queue)s AND key = %(key)s AND granted IS NULL
ORDER BY priority DESC, arrived, number LIMIT 1;

-- name: select_queue_is_paused
SELECT EXISTS (SELECT 1 FROM waits WHERE session = %(session)s AND kind = %(paused_kind)s AND run = %(owner)s);

-- name: select_seconds_until_start
SELECT extract(epoch FROM at + make_interval(secs => %(rate_seconds)s) - clock_timestamp())::double precision
FROM queue_starts WHERE session = %(session)s AND queue = %(queue)s AND key = %(key)s
ORDER BY at DESC OFFSET %(rate_limit)s - 1 LIMIT 1;

-- name: grant_queue_entry
UPDATE queue_entries SET granted = clock_timestamp() WHERE run = %(run)s AND path = %(path)s;

-- name: insert_queue_start
INSERT INTO queue_starts (session, queue, key, at)
VALUES (%(session)s, %(queue)s, %(key)s, clock_timestamp());

-- name: delete_old_queue_starts
DELETE FROM queue_starts WHERE session = %(session)s AND queue = %(queue)s AND key = %(key)s
    AND at < clock_timestamp() - make_interval(secs => %(rate_seconds)s);

-- name: select_untold_queue_entries
SELECT run, path, queue, key, family, priority, arrived, concurrency, rate_limit, rate_seconds, asked
FROM queue_entries
WHERE session = %(session)s AND granted <= clock_timestamp() - make_interval(secs => %(age)s) AND NOT is_told
ORDER BY granted LIMIT %(limit)s;

-- name: select_families_with_slots
SELECT DISTINCT family FROM queue_entries AS holder
WHERE session = %(session)s AND granted IS NOT NULL AND EXISTS (
    SELECT 1 FROM queue_entries AS entry
    WHERE entry.session = holder.session AND entry.queue = holder.queue AND entry.key = holder.key
        AND entry.granted IS NULL
);
