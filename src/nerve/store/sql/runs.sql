-- name: upsert_runs
INSERT OR FAIL INTO runs (
    id, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary, seq
)
VALUES :rows
ON CONFLICT (id) DO UPDATE SET
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
INSERT INTO definitions (hash, workflow, notation, source, canonical) VALUES :rows
ON CONFLICT (hash) DO UPDATE SET source = excluded.source, canonical = excluded.canonical
WHERE source <> excluded.source; -- the same text under another key

-- name: run_columns
run, runs.session, workflow, state, runs.started, ended, key, parent, wake, definition, conversation, label, summary

-- name: run_filters
(:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:session IS NULL OR runs.session = :session)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:conversation IS NULL OR conversation = :conversation)
    AND (:label IS NULL OR label = :label)
    AND runs.started >= ifnull(:since, -9e999)
    AND (:started IS NULL OR (runs.started, run) < (:started, :before))
    AND (:tags IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:tags) WHERE NOT EXISTS (
            SELECT 1 FROM tags AS own
            WHERE own.id = runs.id AND own.kind = 'tag'
                AND own.name = json_each.key AND own.value = json_each.value
        )
    ))
    AND (:patch IS NULL OR 'false' = ifnull(
        (SELECT own.value FROM tags AS own WHERE own.id = runs.id AND own.kind = 'patch' AND own.name = :patch),
        iif(
            runs.started < (
                SELECT since FROM patches
                WHERE patches.session = runs.session AND name = :patch AND patches.workflow = runs.workflow
            ),
            'false',
            'true'
        )
    ))
    AND (:chain IS NULL OR EXISTS (
        SELECT 1 FROM tags AS own WHERE own.id = runs.id AND own.kind = 'chain' AND own.value = :chain
    ))

-- name: run_order
ORDER BY started DESC, run DESC
LIMIT :newest

-- name: select_run
SELECT :run_columns FROM journals CROSS JOIN runs USING (id) WHERE run = ?;

-- name: select_run_by_key
SELECT :run_columns FROM runs CROSS JOIN journals USING (id)
WHERE session = ? AND key = ?;

-- name: select_runs
SELECT :run_columns FROM journals CROSS JOIN runs USING (id)
WHERE run >= :prefix AND run < :prefix || char(1114111) AND :run_filters
:run_order;

-- name: select_newest_runs
SELECT :run_columns FROM runs CROSS JOIN journals USING (id)
WHERE session = :session AND started <= ifnull(:started, 9e999)
    AND +run >= :prefix AND +run < :prefix || char(1114111) AND :run_filters
:run_order;

-- name: select_newest_runs_in_state
SELECT :run_columns FROM runs CROSS JOIN journals USING (id)
WHERE state = :state AND session = :session AND started <= ifnull(:started, 9e999)
    AND +run >= :prefix AND +run < :prefix || char(1114111) AND :run_filters
:run_order;

-- name: select_runs_in_states
SELECT :run_columns FROM runs CROSS JOIN journals USING (id)
WHERE state IN (SELECT value FROM json_each(:states))
    AND +run >= :prefix AND +run < :prefix || char(1114111) AND :run_filters
:run_order;

-- name: select_runs_of_conversation
SELECT :run_columns FROM runs CROSS JOIN journals USING (id)
WHERE conversation = :conversation
    AND +run >= :prefix AND +run < :prefix || char(1114111) AND :run_filters
:run_order;

-- name: select_runs_with_label
SELECT :run_columns FROM runs CROSS JOIN journals USING (id)
WHERE label = :label
    AND +run >= :prefix AND +run < :prefix || char(1114111) AND :run_filters
:run_order;

-- name: select_runs_with_tag
SELECT :run_columns FROM tags CROSS JOIN runs USING (id) CROSS JOIN journals USING (id)
WHERE tags.session = :session AND tags.kind = :kind AND tags.name = :tag AND tags.value = :value
    AND tags.started <= ifnull(:started, 9e999) AND tags.started >= ifnull(:since, -9e999)
    AND +run >= :prefix AND +run < :prefix || char(1114111) AND :run_filters
ORDER BY tags.started DESC, run DESC
LIMIT :newest;

-- name: search_runs
SELECT :run_columns FROM (:candidates) AS runs CROSS JOIN journals USING (run)
WHERE instr(lower(workflow), lower(:search)) OR instr(lower(ifnull(label, '')), lower(:search))
    OR EXISTS (
        SELECT 1 FROM tags
        WHERE tags.id = journals.id AND kind = 'tag' AND instr(lower(name || '=' || value), lower(:search))
    )
    OR instr(ifnull((
        SELECT lower(CASE WHEN json_valid(data) THEN data ->> '$.input' END) FROM events
        WHERE journal = journals.id AND events.seq = 1 AND typeof(data) = 'text' AND length(data) <= :max_chars
    ), ''), lower(:search))
LIMIT :found;

-- name: upsert_tags
INSERT INTO tags (id, kind, name, value, session, started) VALUES :rows
ON CONFLICT (id, kind, name) DO UPDATE SET value = excluded.value;

-- name: insert_patches
INSERT OR IGNORE INTO patches (session, name, workflow, since) VALUES :rows;

-- name: delete_tags
DELETE FROM tags WHERE id = ?;

-- name: select_tag_names
WITH RECURSIVE names (name) AS (
    SELECT min(name) FROM tags WHERE session = :session AND kind = :kind
    UNION ALL
    SELECT (SELECT min(name) FROM tags WHERE session = :session AND kind = :kind AND name > names.name)
    FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL;

-- name: count_runs
SELECT state, sum(number) FROM run_counts WHERE session = ? GROUP BY state HAVING sum(number) > 0;

-- name: count_definitions
SELECT definition, sum(number) FROM run_counts
WHERE session = ? AND definition <> '' AND number > 0
GROUP BY definition ORDER BY min(since);

-- name: select_sessions
SELECT session FROM run_counts WHERE number > 0 GROUP BY session ORDER BY min(since);

-- name: select_labels
SELECT DISTINCT label FROM runs
WHERE label >= :prefix AND label < :prefix || char(1114111) AND +session = :session
ORDER BY label LIMIT :limit;

-- name: select_definition
SELECT hash, workflow, notation, source, canonical FROM definitions WHERE hash = ?;

-- name: delete_run
DELETE FROM runs WHERE id = ?;

-- name: count_resumes
INSERT INTO resumes (run, times) SELECT value, 1 FROM json_each(:runs) WHERE true
ON CONFLICT (run) DO UPDATE SET times = times + 1;

-- name: forget_resumes
DELETE FROM resumes WHERE run IN (SELECT value FROM json_each(:runs));

-- name: forget_resume
DELETE FROM resumes WHERE run = ?;

-- name: select_resumes
SELECT run, times FROM resumes;
