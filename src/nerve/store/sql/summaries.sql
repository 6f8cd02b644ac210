-- name: upsert_waits
INSERT INTO waits (session, run, path, kind, since, data) VALUES :rows
ON CONFLICT (run, path) DO UPDATE SET
    session = excluded.session,
    kind = excluded.kind,
    since = excluded.since,
    data = excluded.data;

-- name: delete_waits
DELETE FROM waits WHERE (run, path) IN (VALUES :rows);

-- name: delete_waits_of_runs
DELETE FROM waits WHERE run IN (VALUES :rows);

-- name: select_open_waits
SELECT session, run, path, kind, since, data FROM waits
WHERE session = :session AND kind = :kind AND (since, run, path) > (:since, :run, :path)
ORDER BY since, run, path LIMIT :limit;

-- name: select_waits_of_run
SELECT session, run, path, kind, since, data FROM waits WHERE run = ? ORDER BY since, path;

-- name: count_waits
SELECT kind, count(*) FROM waits WHERE session = ? GROUP BY kind;

-- name: add_usage
INSERT INTO usage (session, day, model, name, amount) VALUES :rows
ON CONFLICT (session, day, model, name) DO UPDATE SET amount = amount + excluded.amount;

-- name: select_usage
SELECT session, day, model, name, amount FROM usage
WHERE session = ? AND day BETWEEN ? AND ?
ORDER BY day, model;

-- name: add_step_usage
INSERT INTO step_usage (session, day, workflow, step, model, name, amount) VALUES :rows
ON CONFLICT (session, day, workflow, step, model, name) DO UPDATE SET amount = amount + excluded.amount;

-- name: select_step_usage
SELECT session, day, workflow, step, model, name, amount FROM step_usage
WHERE session = ? AND day BETWEEN ? AND ?
ORDER BY day, workflow, step, model;

-- name: select_property
SELECT value FROM properties WHERE name = ?;

-- name: upsert_property
INSERT INTO properties (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
