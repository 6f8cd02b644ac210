-- name: insert_events
INSERT OR FAIL INTO events (run, seq, at, type, path, settles, data, hash) VALUES :rows;

-- name: insert_blobs
INSERT OR IGNORE INTO blobs (hash, data) VALUES :rows;

-- name: select_head
SELECT seq, hash FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1;

-- name: select_settling
SELECT seq FROM events WHERE run = ? AND settles = ?;

-- name: select_events
SELECT seq, at, type, path, settles, data, hash FROM events WHERE run = ? AND seq >= ? ORDER BY seq;

-- name: select_blob
SELECT data FROM blobs WHERE hash = ?;
