-- name: insert_events
INSERT OR FAIL INTO events (run, seq, at, type, path, settles, data, hash) VALUES :rows;

-- name: insert_blobs
INSERT OR IGNORE INTO blobs (hash, data) VALUES :rows;

-- name: select_head
SELECT seq, hash FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1;

-- name: select_hash
SELECT hash FROM events WHERE run = ? AND seq = ?;

-- name: select_settling
SELECT seq FROM events WHERE run = ? AND settles = ?;

-- name: select_events
SELECT seq, at, type, path, settles, data, hash FROM events
WHERE run = ?1 AND seq >= ?2 AND seq <= ?3 AND NOT EXISTS (SELECT 1 FROM deletions WHERE run = ?1)
ORDER BY seq;

-- name: select_last
SELECT seq FROM events
WHERE run = ?1 AND (?2 IS NULL OR type = ?2) AND NOT EXISTS (SELECT 1 FROM deletions WHERE run = ?1)
ORDER BY seq DESC LIMIT 1;

-- name: select_blob
SELECT data FROM blobs WHERE hash = ?;

-- name: select_data
SELECT type, data FROM events WHERE run = ? AND seq = ?;

-- name: select_size
SELECT
    count(*),
    ifnull(sum(CASE
        WHEN typeof(data) = 'text' THEN octet_length(data)
        ELSE ifnull((SELECT octet_length(blobs.data) FROM blobs WHERE blobs.hash = events.data), 0)
    END), 0)
FROM events WHERE run = ?;

-- name: select_old_events
SELECT
    seq,
    CASE
        WHEN typeof(data) = 'text' THEN octet_length(data)
        ELSE ifnull((SELECT octet_length(blobs.data) FROM blobs WHERE blobs.hash = events.data), 0)
    END
FROM events
WHERE run = ? AND type = ? AND at < ?
    AND (typeof(data) = 'text' AND data <> '{}' OR typeof(data) = 'blob' AND length(data) = 32)
    AND seq > ?
ORDER BY seq LIMIT ?;

-- name: select_blobs_behind
SELECT DISTINCT data FROM events
WHERE run = ? AND seq > ? AND typeof(data) = 'blob' AND length(data) = 32;

-- name: delete_events_behind
DELETE FROM events WHERE run = ? AND seq > ?;

-- name: insert_deletion
INSERT OR IGNORE INTO deletions (run) VALUES (?);

-- name: select_deletion
SELECT run FROM deletions LIMIT 1;

-- name: select_is_deleted
SELECT 1 FROM deletions WHERE run = ?;

-- name: delete_deletion
DELETE FROM deletions WHERE run = ?;

-- name: delete_blob
DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (
    SELECT 1 FROM events WHERE data = ?1 AND typeof(data) = 'blob' AND length(data) = 32
);

-- name: empty_event
UPDATE events SET data = ? WHERE run = ? AND seq = ?;
