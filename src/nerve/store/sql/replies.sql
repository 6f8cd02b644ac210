-- name: insert_replies
INSERT OR IGNORE INTO replies (session, key, at, asked, reply) VALUES :rows;

-- name: select_reply
SELECT session, key, at, asked, reply FROM replies WHERE session = ? AND key = ?;

-- name: delete_replies
DELETE FROM replies WHERE at < :before;
