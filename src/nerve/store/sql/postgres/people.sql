-- name: select_people_changes
SELECT session, number, at, name, data, hash FROM people WHERE session = %s AND number > %s ORDER BY number;

-- name: insert_people_change
INSERT INTO people (session, number, at, name, data, hash) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING;
