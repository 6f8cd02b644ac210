-- name: upsert_runs
INSERT OR FAIL INTO runs (
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, seq
)
VALUES :rows
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
    seq = excluded.seq;

-- name: insert_definitions
INSERT OR IGNORE INTO definitions (hash, workflow, notation, source, canonical) VALUES :rows;

-- name: select_run
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs WHERE run = ?;

-- name: select_reach
SELECT seq FROM runs WHERE run = ?;

-- name: select_run_by_key
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE session = ? AND key = ?;

-- name: select_runs
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE run >= :prefix AND run < :prefix || char(1114111)
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:session IS NULL OR session = :session)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:conversation IS NULL OR conversation = :conversation)
    AND (:label IS NULL OR label = :label)
    AND (:started IS NULL OR (started, run) < (:started, :before))
ORDER BY started DESC, run DESC
LIMIT :newest;

-- name: select_newest_runs
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE session = :session
    AND +run >= :prefix AND +run < :prefix || char(1114111)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:conversation IS NULL OR conversation = :conversation)
    AND (:label IS NULL OR label = :label)
    AND started <= ifnull(:started, 9e999)
    AND (:started IS NULL OR (started, run) < (:started, :before))
ORDER BY started DESC, run DESC
LIMIT :newest;

-- name: select_newest_runs_in_state
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE state = :state AND session = :session
    AND +run >= :prefix AND +run < :prefix || char(1114111)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:conversation IS NULL OR conversation = :conversation)
    AND (:label IS NULL OR label = :label)
    AND started <= ifnull(:started, 9e999)
    AND (:started IS NULL OR (started, run) < (:started, :before))
ORDER BY started DESC, run DESC
LIMIT :newest;

-- name: select_runs_in_states
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE state IN (SELECT value FROM json_each(:states))
    AND +run >= :prefix AND +run < :prefix || char(1114111)
    AND (:session IS NULL OR session = :session)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:conversation IS NULL OR conversation = :conversation)
    AND (:label IS NULL OR label = :label)
    AND (:started IS NULL OR (started, run) < (:started, :before))
ORDER BY started DESC, run DESC
LIMIT :newest;

-- name: select_runs_of_conversation
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE conversation = :conversation
    AND +run >= :prefix AND +run < :prefix || char(1114111)
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:session IS NULL OR session = :session)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:label IS NULL OR label = :label)
    AND (:started IS NULL OR (started, run) < (:started, :before))
ORDER BY started DESC, run DESC
LIMIT :newest;

-- name: select_runs_with_label
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label
FROM runs
WHERE label = :label
    AND +run >= :prefix AND +run < :prefix || char(1114111)
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:session IS NULL OR session = :session)
    AND (:workflow IS NULL OR workflow = :workflow)
    AND (:conversation IS NULL OR conversation = :conversation)
    AND (:started IS NULL OR (started, run) < (:started, :before))
ORDER BY started DESC, run DESC
LIMIT :newest;

-- name: count_runs
SELECT state, count(*) FROM runs WHERE +session = ? GROUP BY state;

-- name: count_definitions
SELECT definition, count(*) FROM runs WHERE +session = ? AND definition IS NOT NULL
GROUP BY definition ORDER BY min(started);

-- name: select_sessions
SELECT session FROM runs GROUP BY session ORDER BY min(started);

-- name: select_labels
SELECT DISTINCT label FROM runs
WHERE label >= :prefix AND label < :prefix || char(1114111) AND +session = :session
ORDER BY label LIMIT :limit;

-- name: select_definition
SELECT hash, workflow, notation, source, canonical FROM definitions WHERE hash = ?;

-- name: delete_run
DELETE FROM runs WHERE run = ?;

-- name: count_resumes
INSERT INTO resumes (run, times) SELECT value, 1 FROM json_each(:runs) WHERE true
ON CONFLICT (run) DO UPDATE SET times = times + 1;

-- name: forget_resumes
DELETE FROM resumes WHERE run IN (SELECT value FROM json_each(:runs));

-- name: forget_resume
DELETE FROM resumes WHERE run = ?;

-- name: select_resumes
SELECT run, times FROM resumes;
