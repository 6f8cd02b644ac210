-- name: integrity_check
PRAGMA integrity_check({});

-- name: select_next_run
SELECT id, run FROM journals JOIN runs USING (id) WHERE id > ? ORDER BY id LIMIT 1;

-- name: select_next_journal
SELECT journal FROM events INDEXED BY events_by_journal WHERE journal > ? ORDER BY journal LIMIT 1;

-- name: select_run_of_journal
SELECT
    (SELECT run FROM journals WHERE id = ?1),
    EXISTS (SELECT 1 FROM runs WHERE id = ?1) OR EXISTS (SELECT 1 FROM deletions WHERE journal = ?1);

-- name: select_whole_run
SELECT
    run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, summary,
    seq
FROM runs NOT INDEXED JOIN journals NOT INDEXED USING (id) WHERE id = ?;

-- name: has_definition
SELECT 1 FROM definitions WHERE hash = ?;

-- name: find_journal
SELECT 1 FROM journals WHERE run = :run AND id = :id;

-- name: find_run_by_state
SELECT 1 FROM runs INDEXED BY runs_by_state
WHERE state = :state AND session = :session AND started = :started AND id = :id;

-- name: find_run_by_start
SELECT 1 FROM runs INDEXED BY runs_by_start WHERE session = :session AND started = :started AND id = :id;

-- name: find_run_by_key
SELECT 1 WHERE :key IS NULL
UNION ALL
SELECT 1 FROM runs INDEXED BY runs_by_key WHERE session = :session AND key = :key AND id = :id;

-- name: find_run_by_conversation
SELECT 1 WHERE :conversation IS NULL
UNION ALL
SELECT 1 FROM runs INDEXED BY runs_by_conversation
WHERE conversation = :conversation AND started = :started AND id = :id;

-- name: find_run_by_label
SELECT 1 WHERE :label IS NULL
UNION ALL
SELECT 1 FROM runs INDEXED BY runs_by_label WHERE label = :label AND started = :started AND id = :id;
