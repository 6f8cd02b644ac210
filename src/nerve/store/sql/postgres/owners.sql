-- name: lock_claims
SELECT pg_advisory_xact_lock(%s, hashtext(current_schema() || ' claim ' || %s));

-- name: select_owner
SELECT owner, renewed < clock_timestamp() - make_interval(secs => %(lease)s)
FROM owners JOIN leases USING (session) WHERE session = %(session)s;

-- name: try_session_lock
SELECT pg_try_advisory_lock(%s, hashtext(current_schema() || ' ' || %s));

-- name: terminate_session_lock_holder
SELECT pg_terminate_backend(pid, 2000) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND classid = %s
    AND objid::bigint = hashtext(current_schema() || ' ' || %s)::bigint & 4294967295
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: claim_session
INSERT INTO owners (session, epoch, owner, last_commit) VALUES (%(session)s, 1, %(owner)s, 0)
ON CONFLICT (session) DO UPDATE SET epoch = owners.epoch + 1, owner = excluded.owner, last_commit = 0
RETURNING epoch;

-- name: start_lease
INSERT INTO leases (session, renewed) VALUES (%(session)s, clock_timestamp())
ON CONFLICT (session) DO UPDATE SET renewed = excluded.renewed;

-- name: renew_lease
UPDATE leases SET renewed = clock_timestamp()
WHERE session = %(session)s
    AND EXISTS (SELECT 1 FROM owners WHERE owners.session = leases.session AND epoch = %(epoch)s)
RETURNING 1;

-- name: end_lease
UPDATE leases SET renewed = '-infinity'
WHERE session = %(session)s
    AND EXISTS (SELECT 1 FROM owners WHERE owners.session = leases.session AND epoch = %(epoch)s);

-- name: note_commit
SELECT note_commit(%s, %s, %s);

-- name: select_last_commit
SELECT last_commit FROM owners WHERE session = %s AND epoch = %s FOR UPDATE;

-- name: select_live_owner
SELECT owner FROM owners JOIN leases USING (session)
WHERE session = %s AND renewed >= clock_timestamp() - make_interval(secs => %s);

-- name: select_epoch
SELECT epoch FROM owners WHERE session = %s;
