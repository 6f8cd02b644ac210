-- name: select_stream_id
SELECT id FROM stream_identity;

-- name: select_stream_end
SELECT id FROM events JOIN runs USING (run) WHERE session = %s ORDER BY id DESC LIMIT 1;

-- name: select_stream
SELECT id, run, workflow, events.seq, at, type, path, settles, data
FROM events JOIN runs USING (run)
WHERE id > %s AND session = %s AND (%s::text[] IS NULL OR type = ANY(%s))
    AND NOT EXISTS (SELECT 1 FROM deletions WHERE deletions.run = events.run)
ORDER BY id LIMIT %s;

-- name: listen
LISTEN nerve;

-- name: select_schema_name
SELECT current_schema();

-- name: insert_command
WITH sent AS (
    INSERT INTO commands (id, session, operation, arguments, caller, deadline)
    VALUES (
        %(id)s, %(session)s, %(operation)s, %(arguments)s, %(caller)s,
        clock_timestamp() + make_interval(secs => %(patience)s)
    )
    ON CONFLICT DO NOTHING -- sent again after a lost confirmation
)
SELECT pg_notify('nerve', current_schema() || '/' || %(session)s || '/commands');

-- name: select_command
SELECT
    begun IS NOT NULL, reply, deadline < clock_timestamp(),
    EXISTS (
        SELECT 1 FROM leases
        WHERE leases.session = commands.session AND renewed >= clock_timestamp() - make_interval(secs => %(lease)s)
    )
FROM commands WHERE id = %(id)s;

-- name: withdraw_command
DELETE FROM commands WHERE id = %s AND begun IS NULL RETURNING 1;

-- name: delete_command
DELETE FROM commands WHERE id = %s;

-- name: lock_ownership
SELECT 1 FROM owners WHERE session = %s AND epoch = %s FOR SHARE;

-- name: begin_commands
UPDATE commands SET begun = coalesce(begun, clock_timestamp())
WHERE session = %(session)s AND reply IS NULL AND NOT id = ANY(%(running)s)
    AND (begun IS NOT NULL OR deadline >= clock_timestamp())
RETURNING id, operation, arguments, caller;

-- name: reply_to_command
WITH replied AS (
    UPDATE commands SET reply = %(reply)s WHERE id = %(id)s
)
SELECT pg_notify('nerve', current_schema() || '/' || %(session)s || '/replies');

-- name: delete_old_commands
DELETE FROM commands
WHERE session = %(session)s AND sent < clock_timestamp() - make_interval(secs => %(age)s)
    AND (reply IS NOT NULL OR (begun IS NULL AND deadline < clock_timestamp()));
