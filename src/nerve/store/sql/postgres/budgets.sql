-- name: select_budget_reservations
SELECT run, path, used, CASE WHEN expires < clock_timestamp() THEN '{}' ELSE reserved END
FROM budget_reservations WHERE session = %s AND day = %s;

-- name: upsert_budget_reservation
INSERT INTO budget_reservations (run, path, session, day, used, reserved, expires)
VALUES (
    %(run)s, %(path)s, %(session)s, %(day)s, %(used)s, %(reserved)s,
    clock_timestamp() + make_interval(secs => %(lease)s)
)
ON CONFLICT (run, path) DO UPDATE SET
    day = excluded.day,
    used = excluded.used,
    reserved = excluded.reserved,
    expires = excluded.expires;

-- name: renew_budget_reservation
UPDATE budget_reservations SET expires = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE run = %(run)s AND path = %(path)s;

-- name: delete_budget_reservations
DELETE FROM budget_reservations WHERE run = %s AND path = ANY(%s);

-- name: delete_budget_reservations_of_runs
DELETE FROM budget_reservations WHERE run = ANY(%s);
