-- name: integrity_check
PRAGMA integrity_check({});

-- name: select_next_run
SELECT run FROM runs NOT INDEXED WHERE run > ? ORDER BY run LIMIT 1;

-- name: select_next_journal
SELECT run FROM events NOT INDEXED WHERE run > ? ORDER BY run LIMIT 1;

-- name: select_whole_run
SELECT run, session, workflow, state, started, ended, key, parent, wake, definition, conversation, label, seq
FROM runs NOT INDEXED WHERE run = ?;

-- name: has_definition
SELECT 1 FROM definitions WHERE hash = ?;

-- name: find_settling
SELECT seq FROM events INDEXED BY events_settled WHERE run = ? AND settles = ?;

-- name: find_run_by_state
SELECT 1 FROM runs INDEXED BY runs_by_state
WHERE state = :state AND session = :session AND started = :started AND run = :run;

-- name: find_run_by_start
SELECT 1 FROM runs INDEXED BY runs_by_start WHERE session = :session AND started = :started AND run = :run;

-- name: find_run_by_key
SELECT 1 WHERE :key IS NULL
UNION ALL
SELECT 1 FROM runs INDEXED BY runs_by_key WHERE session = :session AND key = :key AND run = :run;

-- name: find_run_by_conversation
SELECT 1 WHERE :conversation IS NULL
UNION ALL
SELECT 1 FROM runs INDEXED BY runs_by_conversation
WHERE conversation = :conversation AND started = :started AND run = :run;

-- name: find_run_by_label
SELECT 1 WHERE :label IS NULL
UNION ALL
SELECT 1 FROM runs INDEXED BY runs_by_label WHERE label = :label AND started = :started AND run = :run;
