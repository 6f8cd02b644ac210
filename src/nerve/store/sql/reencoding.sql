-- name: select_next_named_journal
SELECT id, run FROM journals WHERE id > ? ORDER BY id LIMIT 1;

-- name: update_event_data
UPDATE events SET data = ?, first_data = ?, hash = ? WHERE journal = ? AND seq = ?;

-- name: rebuild
VACUUM;

-- name: select_summary_payloads
SELECT id, run, summary FROM runs JOIN journals USING (id)
WHERE id > ? AND summary IS NOT NULL ORDER BY id LIMIT 500;

-- name: update_summary_payloads
UPDATE runs SET summary = ?2 WHERE id = ?1;

-- name: select_definition_payloads
SELECT hash, source, canonical FROM definitions WHERE hash > ? ORDER BY hash LIMIT 500;

-- name: update_definition_payloads
UPDATE definitions SET source = ?2, canonical = ?3 WHERE hash = ?1;

-- name: select_fact_payloads
SELECT session, id, version, record FROM facts
WHERE (session, id) > (?, ?) ORDER BY session, id LIMIT 500;

-- name: update_fact_payloads
UPDATE facts SET record = ?3 WHERE session = ?1 AND id = ?2;

-- name: select_message_payloads
SELECT conversation, seq, at, role, run, text FROM messages
WHERE (conversation, seq) > (?, ?) ORDER BY conversation, seq LIMIT 500;

-- name: update_message_payloads
UPDATE messages SET text = ?3 WHERE conversation = ?1 AND seq = ?2;

-- name: select_reply_payloads
SELECT session, key, asked, reply FROM replies
WHERE (session, key) > (?, ?) ORDER BY session, key LIMIT 500;

-- name: update_reply_payloads
UPDATE replies SET asked = ?3, reply = ?4 WHERE session = ?1 AND key = ?2;

-- name: select_wait_payloads
SELECT run, path, kind, data FROM waits WHERE (run, path) > (?, ?) ORDER BY run, path LIMIT 500;

-- name: update_wait_payloads
UPDATE waits SET data = ?3 WHERE run = ?1 AND path = ?2;
