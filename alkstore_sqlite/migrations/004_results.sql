-- Results, version 1.3: what jobs have come to, for as long as each of them was told to keep it (Z-17).

-- How long what the job comes to is kept, in microseconds; NULL: nothing is. It stands behind the payload, as an added column
-- must. Of a row without it SQLite learns so from the row's head: the payload isn't read for it.
ALTER TABLE alkstore_jobs ADD COLUMN keep_result INTEGER CHECK (keep_result > 0);
ALTER TABLE alkstore_dead_jobs ADD COLUMN keep_result INTEGER;

-- Under the id that the job had. One that is dead has no row here: the dead table says so.
CREATE TABLE alkstore_results (
    id          INTEGER PRIMARY KEY,
    queue       TEXT    NOT NULL,
    outcome     TEXT    NOT NULL CHECK (outcome IN ('succeeded', 'cancelled')),
    attempts    INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    worker_id   TEXT,
    codec       TEXT,
    payload     BLOB,
    CHECK ((outcome = 'succeeded') = (payload IS NOT NULL) AND (payload IS NULL) = (codec IS NULL)),
    CHECK (typeof(payload) IN ('blob', 'null'))
);

-- What a sweep deletes, and which queues have any.
CREATE INDEX alkstore_results_expiry ON alkstore_results (queue, expires_at);

DROP VIEW alkstore_readable_jobs;
CREATE VIEW alkstore_readable_jobs AS
SELECT
    id,
    queue,
    state,
    priority,
    attempts,
    max_attempts,
    strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06d+00:00', created_at % 1000000) AS created_at,
    strftime('%Y-%m-%d %H:%M:%S', run_at / 1000000, 'unixepoch') || printf('.%06d+00:00', run_at % 1000000) AS run_at,
    strftime('%Y-%m-%d %H:%M:%S', expires_at / 1000000, 'unixepoch') || printf('.%06d+00:00', expires_at % 1000000) AS expires_at,
    worker_id,
    strftime('%Y-%m-%d %H:%M:%S', lease_until / 1000000, 'unixepoch') || printf('.%06d+00:00', lease_until % 1000000)
        AS claim_expires_at,
    strftime('%Y-%m-%d %H:%M:%S', died_at / 1000000, 'unixepoch') || printf('.%06d+00:00', died_at % 1000000)
        AS died_at,
    last_error,
    printf(
        '%02d:%02d:%02d.%06d', visibility_timeout / 3600000000, visibility_timeout / 60000000 % 60,
        visibility_timeout / 1000000 % 60, visibility_timeout % 1000000
    ) AS visibility_timeout,
    headers,
    codec,
    length(payload) AS payload_bytes,
    CASE codec WHEN 'json' THEN CAST(payload AS TEXT) ELSE 'x''' || hex(payload) || '''' END AS payload,
    CASE WHEN keep_result IS NOT NULL THEN printf(
        '%02d:%02d:%02d.%06d', keep_result / 3600000000, keep_result / 60000000 % 60, keep_result / 1000000 % 60,
        keep_result % 1000000
    ) END AS keep_result
FROM (
    SELECT
        id, queue, CASE WHEN token IS NULL THEN 'pending' ELSE 'processing' END AS state, priority, attempts,
        max_attempts, created_at, run_at, expires_at, worker_id, lease_until, NULL AS died_at, last_error,
        visibility_timeout, headers, codec, payload, keep_result
    FROM alkstore_jobs
    UNION ALL
    SELECT
        id, queue, 'dead', priority, attempts, max_attempts, created_at, run_at, expires_at, NULL, NULL, died_at,
        last_error, visibility_timeout, headers, codec, payload, keep_result
    FROM alkstore_dead_jobs
);

-- For people at a prompt, as above.
CREATE VIEW alkstore_readable_results AS
SELECT
    id,
    queue,
    outcome,
    attempts,
    strftime('%Y-%m-%d %H:%M:%S', enqueued_at / 1000000, 'unixepoch') || printf('.%06d+00:00', enqueued_at % 1000000)
        AS enqueued_at,
    strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06d+00:00', finished_at % 1000000)
        AS finished_at,
    strftime('%Y-%m-%d %H:%M:%S', expires_at / 1000000, 'unixepoch') || printf('.%06d+00:00', expires_at % 1000000)
        AS expires_at,
    worker_id,
    codec,
    length(payload) AS result_bytes,
    CASE WHEN codec = 'json' THEN CAST(payload AS TEXT) WHEN codec IS NOT NULL THEN 'x''' || hex(payload) || '''' END AS result
FROM alkstore_results;
