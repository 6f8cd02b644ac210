-- name: select_facts_of
SELECT session, id, version, at, asserted_by, record FROM facts
WHERE session = %(session)s AND (id = ANY(%(ids)s) OR label = ANY(%(labels)s))
ORDER BY version;

-- name: upsert_fact_watch
INSERT INTO fact_watches (run, path, session, family, patterns, keys)
SELECT %(run)s, %(path)s, %(session)s, %(family)s, %(patterns)s, %(keys)s
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run = %(run)s AND ended IS NOT NULL)
ON CONFLICT (run, path) DO UPDATE SET
    family = excluded.family,
    patterns = excluded.patterns,
    keys = excluded.keys,
    match = NULL,
    matched = NULL;

-- name: select_fact_watch
SELECT run, path, family, patterns, keys, match FROM fact_watches WHERE run = %s AND path = %s;

-- name: select_fact_watches_of_keys
SELECT run, path, family, patterns, keys, match FROM fact_watches
WHERE session = %(session)s AND match IS NULL AND keys && %(keys)s
ORDER BY run, path;

-- name: settle_fact_watch
UPDATE fact_watches SET match = %(match)s, matched = clock_timestamp() WHERE run = %(run)s AND path = %(path)s;

-- name: delete_open_fact_watch
DELETE FROM fact_watches WHERE run = %s AND path = %s AND match IS NULL;

-- name: select_matched_fact_watches
SELECT run, path, family, patterns, keys, match FROM fact_watches
WHERE session = %(session)s AND match IS NOT NULL
    AND matched <= clock_timestamp() - make_interval(secs => %(age)s)
ORDER BY matched LIMIT %(limit)s;

-- name: delete_matched_fact_watch
DELETE FROM fact_watches WHERE run = %(run)s AND path = %(path)s AND match = %(match)s;

-- name: delete_fact_watches_of_runs
DELETE FROM fact_watches WHERE run = ANY(%s);
