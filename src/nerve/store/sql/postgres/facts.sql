-- name: upsert_facts
INSERT INTO facts (session, id, version, at, asserted_by, label, record)
SELECT session, id, version, at, asserted_by, label, record
FROM json_to_recordset(%s::json) AS new (
    session text, id text, version bigint, at double precision, asserted_by text, label text, record text
)
ON CONFLICT (session, id) DO UPDATE SET
    version = excluded.version,
    at = excluded.at,
    asserted_by = excluded.asserted_by,
    label = excluded.label,
    record = excluded.record;

-- name: delete_facts
DELETE FROM facts USING json_to_recordset(%s::json) AS retracted (session text, id text)
WHERE facts.session = retracted.session AND facts.id = retracted.id;

-- name: upsert_fact_versions
INSERT INTO fact_versions (session, version)
SELECT session, version FROM json_to_recordset(%s::json) AS new (session text, version bigint)
ON CONFLICT (session) DO UPDATE SET version = greatest(fact_versions.version, excluded.version);

-- name: select_facts
SELECT session, id, version, at, asserted_by, record FROM facts
WHERE session = %(session)s AND (%(label)s::text IS NULL OR label = %(label)s)
ORDER BY version;

-- name: select_fact_version
SELECT version FROM fact_versions WHERE session = %s;
