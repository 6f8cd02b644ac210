-- name: upsert_waits
INSERT INTO waits (session, run, path, kind, since, data)
SELECT session, run, path, kind, since, data
FROM json_to_recordset(%s::json) AS new (
    session text, run text, path text, kind text, since double precision, data text
)
ON CONFLICT (run, path) DO UPDATE SET
    session = excluded.session,
    kind = excluded.kind,
    since = excluded.since,
    data = excluded.data;

-- name: delete_waits
DELETE FROM waits USING json_to_recordset(%s::json) AS closed (run text, path text)
WHERE waits.run = closed.run AND waits.path = closed.path;

-- name: delete_waits_of_runs
DELETE FROM waits WHERE run = ANY(%s);

-- name: select_open_waits
SELECT session, run, path, kind, since, data FROM waits
WHERE session = %(session)s AND kind = %(kind)s
    AND (since, run, path) > (%(since)s::double precision, %(run)s COLLATE "C", %(path)s COLLATE "C")
ORDER BY since, run, path LIMIT %(limit)s;

-- name: select_waits_of_run
SELECT session, run, path, kind, since, data FROM waits WHERE run = %s ORDER BY since, path;

-- name: count_waits
SELECT kind, count(*) FROM waits WHERE session = %s GROUP BY kind;

-- name: add_usage
INSERT INTO usage (session, day, model, name, amount)
SELECT session, day, model, name, sum(amount)
FROM json_to_recordset(%s::json) AS new (session text, day text, model text, name text, amount numeric)
GROUP BY session, day, model, name
ON CONFLICT (session, day, model, name) DO UPDATE SET amount = usage.amount + excluded.amount;

-- name: select_usage
SELECT session, day, model, name, amount FROM usage
WHERE session = %s AND day BETWEEN %s AND %s
ORDER BY day, model, name;

-- name: add_step_usage
INSERT INTO step_usage (session, day, workflow, step, model, name, amount)
SELECT session, day, workflow, step, model, name, sum(amount)
FROM json_to_recordset(%s::json) AS new (
    session text, day text, workflow text, step text, model text, name text, amount numeric
)
GROUP BY session, day, workflow, step, model, name
ON CONFLICT (session, day, workflow, step, model, name)
    DO UPDATE SET amount = step_usage.amount + excluded.amount;

-- name: select_step_usage
SELECT session, day, workflow, step, model, name, amount FROM step_usage
WHERE session = %s AND day BETWEEN %s AND %s
ORDER BY day, workflow, step, model, name;

-- name: select_property
SELECT value FROM properties WHERE name = %s;

-- name: upsert_property
INSERT INTO properties (name, value) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
