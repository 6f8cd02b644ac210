-- name: upsert_runs
INSERT INTO runs (
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
)
SELECT
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
FROM json_to_recordset(%s::json) AS new (
    run text, session text, workflow text, state text, started double precision, ended double precision,
    key text, parent text, wake double precision, definition text, conversation text, label text, summary text,
    seq bigint
)
ON CONFLICT (run) DO UPDATE SET
    session = excluded.session,
    workflow = excluded.workflow,
    state = excluded.state,
    started = excluded.started,
    ended = excluded.ended,
    key = excluded.key,
    parent = excluded.parent,
    wake = excluded.wake,
    definition = excluded.definition,
    conversation = excluded.conversation,
    label = excluded.label,
    summary = excluded.summary,
    seq = excluded.seq;

-- name: insert_definitions
INSERT INTO definitions (hash, workflow, notation, source, canonical)
SELECT hash, workflow, notation, source, canonical
FROM json_to_recordset(%s::json) AS new (hash text, workflow text, notation text, source text, canonical text)
ON CONFLICT (hash) DO UPDATE SET source = excluded.source, canonical = excluded.canonical
WHERE definitions.source <> excluded.source; -- the same text under another key

-- name: run_columns
run, runs.session, workflow, state, runs.started, ended, key, parent, wake, definition, conversation, label, summary

-- name: select_run
SELECT :run_columns FROM runs WHERE run = %s;

-- name: select_run_by_key
SELECT :run_columns FROM runs WHERE session = %s AND key = %s;

-- name: select_runs
SELECT :run_columns FROM runs
WHERE (%(session)s::text IS NULL OR runs.session = %(session)s)
    AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s))
    AND (%(workflow)s::text IS NULL OR workflow = %(workflow)s)
    AND (%(prefix)s = '' OR starts_with(run, %(prefix)s))
    AND (%(conversation)s::text IS NULL OR conversation = %(conversation)s)
    AND (%(label)s::text IS NULL OR label = %(label)s)
    AND (%(since)s::double precision IS NULL OR runs.started >= %(since)s)
    AND (
        %(started)s::double precision IS NULL
        OR (runs.started, run) < (%(started)s::double precision, %(before)s::text COLLATE "C")
    )
    AND (%(tags)s::json IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each_text(%(tags)s::json) AS asked WHERE NOT EXISTS (
            SELECT 1 FROM tags
            WHERE tags.run = runs.run AND kind = 'tag' AND name = asked.key AND tags.value = asked.value
        )
    ))
    AND (%(tag)s::text IS NULL OR run IN (
        SELECT tags.run FROM tags
        WHERE (%(session)s::text IS NULL OR tags.session = %(session)s)
            AND kind = 'tag' AND name = %(tag)s AND value = %(value)s
    ))
    AND (%(patch)s::text IS NULL OR 'false' = coalesce(
        (SELECT value FROM tags WHERE tags.run = runs.run AND kind = 'patch' AND name = %(patch)s),
        (
            SELECT 'false' FROM patches
            WHERE patches.session = runs.session AND name = %(patch)s AND patches.workflow = runs.workflow
                AND runs.started < since
        ),
        'true'
    ))
    AND (%(chain)s::text IS NULL OR run IN (
        SELECT tags.run FROM tags
        WHERE (%(session)s::text IS NULL OR tags.session = %(session)s)
            AND kind = 'chain' AND name = 'chain' AND value = %(chain)s
    ))
ORDER BY runs.started DESC, run DESC
LIMIT %(newest)s;

-- name: search_runs
SELECT :run_columns FROM (:candidates) AS runs
WHERE strpos(lower(workflow), lower(%(search)s COLLATE "C")) > 0
    OR strpos(lower(coalesce(label, '')), lower(%(search)s COLLATE "C")) > 0
    OR EXISTS (
        SELECT 1 FROM tags
        WHERE tags.run = runs.run AND kind = 'tag'
            AND strpos(lower(name || '=' || value), lower(%(search)s COLLATE "C")) > 0
    )
    OR strpos(
        coalesce((
            SELECT lower(input_text(data) COLLATE "C") FROM events
            WHERE events.run = runs.run AND events.seq = 1 AND length(data) <= %(max_chars)s
        ), ''),
        lower(%(search)s COLLATE "C")
    ) > 0
ORDER BY started DESC, run DESC
LIMIT %(found)s;

-- name: upsert_tags
INSERT INTO tags (run, kind, name, value, session, started)
SELECT run, kind, name, value, session, started
FROM json_to_recordset(%s::json) AS new (
    run text, kind text, name text, value text, session text, started double precision
)
ON CONFLICT (run, kind, name) DO UPDATE SET value = excluded.value;

-- name: insert_patches
INSERT INTO patches (session, name, workflow, since)
SELECT session, name, workflow, since
FROM json_to_recordset(%s::json) AS new (session text, name text, workflow text, since double precision)
ON CONFLICT DO NOTHING;

-- name: select_tag_names
WITH RECURSIVE names (name) AS (
    SELECT min(name) FROM tags WHERE session = %(session)s AND kind = %(kind)s
    UNION ALL
    SELECT (SELECT min(name) FROM tags WHERE session = %(session)s AND kind = %(kind)s AND name > names.name)
    FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL;

-- name: count_runs
SELECT state, sum(number)::bigint FROM run_counts WHERE session = %s GROUP BY state HAVING sum(number) > 0;

-- name: count_definitions
SELECT definition, sum(number)::bigint FROM run_counts
WHERE session = %s AND definition <> '' AND number > 0
GROUP BY definition ORDER BY min(since);

-- name: select_sessions
SELECT session FROM run_counts WHERE number > 0 GROUP BY session ORDER BY min(since);

-- name: select_labels
SELECT DISTINCT label FROM runs
WHERE label IS NOT NULL AND starts_with(label, %(prefix)s) AND session = %(session)s
ORDER BY label LIMIT %(limit)s;

-- name: select_definition
SELECT hash, workflow, notation, source, canonical FROM definitions WHERE hash = %s;

-- name: delete_runs
DELETE FROM runs WHERE run = ANY(%s);

-- name: delete_tags_of_runs
DELETE FROM tags WHERE run = ANY(%s);

-- name: count_resumes
INSERT INTO resumes (run, times) SELECT run, 1 FROM unnest(%s::text[]) AS new (run)
ON CONFLICT (run) DO UPDATE SET times = resumes.times + 1;

-- name: forget_resumes
DELETE FROM resumes WHERE run = ANY(%s);

-- name: select_resumes
SELECT run, times FROM resumes;
