-- name: upsert_facts
INSERT INTO facts (session, id, version, at, asserted_by, record)
VALUES :rows
ON CONFLICT (session, id) DO UPDATE SET
    version = excluded.version,
    at = excluded.at,
    asserted_by = excluded.asserted_by,
    record = excluded.record;

-- name: delete_facts
DELETE FROM facts WHERE (session, id) IN (VALUES :rows);

-- name: upsert_fact_versions
INSERT INTO fact_versions (session, version)
VALUES :rows
ON CONFLICT (session) DO UPDATE SET version = max(version, excluded.version);

-- name: select_facts
SELECT session, id, version, at, asserted_by, record FROM facts
WHERE session = :session AND (:label IS NULL OR record ->> '$[0]' = :label)
ORDER BY version;

-- name: select_fact_version
SELECT version FROM fact_versions WHERE session = ?;
