-- name: select_next_journal
SELECT run FROM events WHERE run > %s ORDER BY run LIMIT 1;

-- name: update_event_data
UPDATE events SET data = %s, hash = %s WHERE run = %s AND seq = %s;

-- name: rebuild
VACUUM FULL events, runs, definitions, facts, messages, replies, waits, commands;

-- name: select_summary_payloads
SELECT run, run, summary FROM runs WHERE run > %s AND summary IS NOT NULL ORDER BY run LIMIT 500;

-- name: update_summary_payloads
UPDATE runs SET summary = new.summary FROM (VALUES (%s, %s)) AS new (run, summary) WHERE runs.run = new.run;

-- name: select_definition_payloads
SELECT hash, source, canonical FROM definitions WHERE hash > %s ORDER BY hash LIMIT 500;

-- name: update_definition_payloads
UPDATE definitions SET source = new.source, canonical = new.canonical
FROM (VALUES (%s, %s, %s)) AS new (hash, source, canonical) WHERE definitions.hash = new.hash;

-- name: select_fact_payloads
SELECT session, id, version, record FROM facts
WHERE (session, id) > (%s, %s) ORDER BY session, id LIMIT 500;

-- name: update_fact_payloads
UPDATE facts SET record = new.record
FROM (VALUES (%s, %s, %s)) AS new (session, id, record)
WHERE facts.session = new.session AND facts.id = new.id;

-- name: select_message_payloads
SELECT conversation, seq, at, role, run, text FROM messages
WHERE (conversation, seq) > (%s, %s) ORDER BY conversation, seq LIMIT 500;

-- name: update_message_payloads
UPDATE messages SET text = convert_to(new.text, 'UTF8')
FROM (VALUES (%s, %s::bigint, %s)) AS new (conversation, seq, text)
WHERE messages.conversation = new.conversation AND messages.seq = new.seq;

-- name: select_reply_payloads
SELECT session, key, asked, reply FROM replies
WHERE (session, key) > (%s, %s) ORDER BY session, key LIMIT 500;

-- name: update_reply_payloads
UPDATE replies SET asked = new.asked, reply = new.reply
FROM (VALUES (%s, %s, %s, %s)) AS new (session, key, asked, reply)
WHERE replies.session = new.session AND replies.key = new.key;

-- name: select_wait_payloads
SELECT run, path, kind, data FROM waits WHERE (run, path) > (%s, %s) ORDER BY run, path LIMIT 500;

-- name: update_wait_payloads
UPDATE waits SET data = new.data
FROM (VALUES (%s, %s, %s)) AS new (run, path, data) WHERE waits.run = new.run AND waits.path = new.path;

-- name: select_command_payloads
SELECT id, arguments, caller, coalesce(reply, '') FROM commands WHERE id > %s ORDER BY id LIMIT 500;

-- name: update_command_payloads
UPDATE commands SET arguments = new.arguments, caller = new.caller, reply = nullif(new.reply, '')
FROM (VALUES (%s, %s, %s, %s)) AS new (id, arguments, caller, reply) WHERE commands.id = new.id;
