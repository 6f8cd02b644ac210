-- name: insert_message
INSERT INTO messages (conversation, seq, at, role, text, run)
SELECT :conversation, ifnull(max(seq), 0) + 1, :at, :role, :text, :run FROM messages
WHERE conversation = :conversation
RETURNING seq;

-- name: select_messages
SELECT conversation, seq, at, role, text, run FROM messages WHERE conversation = ? AND seq > ? ORDER BY seq;
