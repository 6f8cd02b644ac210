-- name: select_people_changes
SELECT session, number, at, name, data, hash FROM people WHERE session = ? AND number > ? ORDER BY number;

-- name: insert_people_change
INSERT OR IGNORE INTO people (session, number, at, name, data, hash)
SELECT :session, :number, :at, :name, :data, :hash
WHERE :number = (SELECT ifnull(max(number), 0) + 1 FROM people WHERE session = :session);
