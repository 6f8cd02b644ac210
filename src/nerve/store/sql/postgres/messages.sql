-- name: lock_conversation
SELECT pg_advisory_xact_lock(1315271287, hashtext(current_schema() || ' ' || %s));

-- name: insert_message
INSERT INTO messages (conversation, seq, at, role, text, run)
SELECT %(conversation)s, coalesce(max(seq), 0) + 1, %(at)s, %(role)s, %(text)s, %(run)s FROM messages
WHERE conversation = %(conversation)s
RETURNING seq;

-- name: select_messages
SELECT conversation, seq, at, role, text, run FROM messages WHERE conversation = %s AND seq > %s ORDER BY seq;

-- name: insert_replies
INSERT INTO replies (session, key, at, asked, reply) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (session, key) DO UPDATE SET reply = excluded.reply
WHERE replies.reply = '' AND replies.asked = excluded.asked;

-- name: select_reply
SELECT session, key, at, asked, reply FROM replies WHERE session = %s AND key = %s;

-- name: delete_replies
DELETE FROM replies WHERE session = %s AND at < %s;
