-- name: insert_journals
INSERT OR FAIL INTO journals (id, run) VALUES :rows;

-- name: select_last_journal
SELECT max((SELECT ifnull(max(id), 0) FROM journals), (SELECT ifnull(max(journal), 0) FROM events));

-- name: select_end
SELECT
    id,
    (SELECT seq FROM events WHERE journal = journals.id ORDER BY seq DESC LIMIT 1),
    (SELECT hash FROM events WHERE journal = journals.id ORDER BY seq DESC LIMIT 1),
    EXISTS (SELECT 1 FROM deletions WHERE journal = journals.id)
FROM journals WHERE run = ?;

-- name: select_settled
SELECT iif(typeof(settles) = 'integer', path, settles), seq FROM events
WHERE journal = ?1 AND settles IS NOT NULL
UNION ALL
SELECT iif(typeof(first_settles) = 'integer', first_path, first_settles), seq - 1 FROM events
WHERE journal = ?1 AND first_settles IS NOT NULL;

-- name: insert_events
INSERT OR FAIL INTO events (
    journal, seq, hash, at, type, path, settles, data,
    first_at, first_type, first_path, first_settles, first_data
)
VALUES :rows;

-- name: insert_blobs
INSERT OR IGNORE INTO blobs (hash, data) VALUES :rows;

-- name: select_hash
SELECT hash FROM journals JOIN events ON journal = journals.id WHERE run = ? AND seq = ?;

-- name: select_hash_before_version_7
SELECT hash FROM events WHERE run = ? AND seq = ?;

-- name: select_journal
SELECT id, (SELECT seq FROM runs WHERE runs.id = journals.id) FROM journals
WHERE run = ? AND NOT EXISTS (SELECT 1 FROM deletions WHERE journal = journals.id);

-- name: select_events
SELECT
    seq, at, type, path, settles, data, hash, first_at, first_type, first_path, first_settles, first_data
FROM events
WHERE journal = ?1
    AND seq >= ifnull((SELECT max(seq) FROM events WHERE journal = ?1 AND seq <= ?2), 0)
    AND seq <= ?3 + 1 AND (seq <= ?3 OR first_type IS NOT NULL) -- the last may be the first of two in a row
ORDER BY seq;

-- name: select_last
SELECT iif(?2 IS NULL OR type = ?2, seq, seq - 1) FROM events
WHERE journal = ?1 AND (?2 IS NULL OR type = ?2 OR first_type = ?2)
ORDER BY seq DESC LIMIT 1;

-- name: select_blob
SELECT data FROM blobs WHERE hash = ?;

-- name: select_data
SELECT events.id, type, data FROM journals JOIN events ON journal = journals.id WHERE run = ? AND seq = ?;

-- name: select_size
SELECT count(*), ifnull(sum(octet_length(data)), 0) FROM journal WHERE run = ?;

-- name: select_old_events
SELECT seq, octet_length(data) FROM journal
WHERE run = ? AND type = ? AND at < ? AND data <> '{}' AND seq > ?
ORDER BY seq LIMIT ?;

-- name: select_blobs_behind
SELECT DISTINCT data FROM events
WHERE journal = ? AND seq > ? AND typeof(data) = 'blob' AND length(data) = 32;

-- name: delete_events_behind
DELETE FROM events WHERE journal = ? AND seq > ?;

-- name: delete_journal
DELETE FROM journals WHERE id = ?;

-- name: insert_deletion
INSERT OR IGNORE INTO deletions (journal) VALUES (?);

-- name: select_deletion
SELECT
    journal, (SELECT seq FROM events WHERE events.journal = deletions.journal ORDER BY seq DESC LIMIT 1)
FROM deletions LIMIT 1;

-- name: delete_deletion
DELETE FROM deletions WHERE journal = ?;

-- name: delete_blob
DELETE FROM blobs WHERE hash = ?1 AND NOT EXISTS (
    SELECT 1 FROM events WHERE data = ?1 AND typeof(data) = 'blob' AND length(data) = 32
);

-- name: empty_event
UPDATE events SET data = ? WHERE id = ?;

-- name: free_pages
PRAGMA incremental_vacuum({});

-- name: freelist_count
PRAGMA freelist_count;

-- name: select_last_written
SELECT DISTINCT run FROM (SELECT journal FROM events ORDER BY id DESC LIMIT ?) AS last
JOIN journals ON journals.id = last.journal;

-- name: select_stream_end
SELECT events.id FROM events JOIN runs ON runs.id = events.journal
WHERE session = ? ORDER BY events.id DESC LIMIT 1;

-- name: select_stream
SELECT
    events.id, run, workflow, events.seq, at, type, path, settles, data,
    first_at, first_type, first_path, first_settles, first_data
FROM events JOIN runs ON runs.id = events.journal JOIN journals ON journals.id = runs.id
WHERE events.id > ?1 AND session = ?2
    AND (
        ?3 IS NULL
        OR type IN (SELECT value FROM json_each(?3))
        OR first_type IN (SELECT value FROM json_each(?3))
    )
ORDER BY events.id LIMIT ?4;
