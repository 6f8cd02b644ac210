-- name: lock_provider_slots
SELECT pg_advisory_xact_lock(1315271288, hashtext(current_schema() || ' ' || %(session)s || ' ' || %(provider)s));

-- name: delete_expired_slots
DELETE FROM provider_slots
WHERE session = %(session)s AND provider = %(provider)s AND expires < clock_timestamp();

-- name: insert_provider_slot
INSERT INTO provider_slots (session, provider, slot, expires)
SELECT %(session)s, %(provider)s, %(slot)s, clock_timestamp() + %(lease)s * interval '1 second'
WHERE (
    SELECT count(*) FROM provider_slots WHERE session = %(session)s AND provider = %(provider)s
) < %(number)s
RETURNING 1;

-- name: renew_provider_slots
UPDATE provider_slots SET expires = clock_timestamp() + %(lease)s * interval '1 second'
WHERE session = %(session)s AND slot = ANY(%(slots)s)
RETURNING slot;

-- name: delete_provider_slot
DELETE FROM provider_slots WHERE session = %s AND slot = %s;

-- name: select_provider_limit
SELECT until FROM provider_limits WHERE session = %s AND provider = %s;

-- name: upsert_provider_limit
INSERT INTO provider_limits (session, provider, until) VALUES (%s, %s, %s)
ON CONFLICT (session, provider) DO UPDATE SET until = excluded.until;

-- name: select_slot_usage
SELECT provider, sum(busy), max(until) FROM (
    SELECT provider, 1 AS busy, 0::double precision AS until FROM provider_slots
    -- A name with a parenthesis is not that of a provider, but of another lease.
    WHERE session = %(session)s AND expires >= clock_timestamp() AND left(provider, 1) <> '('
    UNION ALL
    SELECT provider, 0, until FROM provider_limits WHERE session = %(session)s
) AS used
GROUP BY provider;
