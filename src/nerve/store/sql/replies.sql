-- name: insert_replies
INSERT INTO replies (session, key, at, asked, reply) VALUES :rows
ON CONFLICT (session, key) DO UPDATE SET reply = excluded.reply
WHERE replies.reply = '' AND replies.asked = excluded.asked;

-- name: select_reply
SELECT session, key, at, asked, reply FROM replies WHERE session = ? AND key = ?;

-- name: delete_replies
DELETE FROM replies WHERE session = :session AND at < :before;
