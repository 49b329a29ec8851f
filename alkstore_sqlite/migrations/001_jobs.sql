-- The tables of alkstore's queues, version 1.0.
--
-- Instants are microseconds since 1970-01-01 UTC and durations are microseconds, both 8-byte integers: they add and
-- compare exactly, know no session time zone and no interval of "days", and never overflow a driver's datetime.
-- alkstore_readable_jobs shows them as people write them.
--
-- The columns stand in the order in which they are read: SQLite reads a row from its front, and stops at the last
-- column that it was asked for. So counting and judging never touch a payload's overflow pages.

-- Pending and processing jobs: a job is processing while it has a token. AUTOINCREMENT, because a plain rowid is given
-- again once its row is gone (Q-ENQ-1).
CREATE TABLE alkstore_jobs (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    queue              TEXT    NOT NULL,
    -- phase and next_at are the claim's bookkeeping and nothing else may depend on them: the essay is in sql.py.
    phase              INTEGER NOT NULL,
    next_at            INTEGER,
    priority           INTEGER NOT NULL,
    run_at             INTEGER NOT NULL,
    attempts           INTEGER NOT NULL DEFAULT 0,
    max_attempts       INTEGER NOT NULL,
    token              INTEGER,
    lease_until        INTEGER,
    expires_at         INTEGER,
    created_at         INTEGER NOT NULL,
    visibility_timeout INTEGER NOT NULL,
    backoff_base       INTEGER NOT NULL,
    backoff_cap        INTEGER NOT NULL,
    retention          INTEGER,
    worker_id          TEXT,
    codec              TEXT    NOT NULL,
    headers            TEXT    NOT NULL DEFAULT '{}',
    last_error         TEXT,
    payload            BLOB    NOT NULL,
    CHECK (attempts BETWEEN 0 AND max_attempts),
    CHECK ((token IS NULL) = (lease_until IS NULL) AND (token IS NULL) = (worker_id IS NULL)),
    CHECK (CASE phase
        WHEN 0 THEN next_at IS expires_at
        WHEN 1 THEN next_at IS NOT NULL
        WHEN 2 THEN next_at IS NULL AND token IS NOT NULL
        WHEN 3 THEN next_at IS NULL AND expires_at IS NOT NULL
        ELSE 0 END),
    CHECK (typeof(payload) = 'blob')
);

-- What can be handed out now, in the order of hand-out (Q-CLAIM-3). An index ends with the rowid by itself: the id.
CREATE INDEX alkstore_jobs_ready ON alkstore_jobs (queue, priority DESC, run_at) WHERE phase = 0;

-- What changes its phase by the passing of time.
CREATE INDEX alkstore_jobs_timer ON alkstore_jobs (queue, next_at) WHERE next_at IS NOT NULL;

-- Claims whose lapse buries their job (Q-CLAIM-6).
CREATE INDEX alkstore_jobs_last ON alkstore_jobs (queue, lease_until) WHERE phase = 2;

-- What a sweep moves (Q-5).
CREATE INDEX alkstore_jobs_expiry ON alkstore_jobs (queue, expires_at) WHERE expires_at IS NOT NULL;

-- What was set aside as expired, for a clock that steps back.
CREATE INDEX alkstore_jobs_expired ON alkstore_jobs (queue, expires_at) WHERE phase = 3;

-- Dead jobs, under the ids that they had when they were alive.
CREATE TABLE alkstore_dead_jobs (
    id                 INTEGER PRIMARY KEY,
    queue              TEXT    NOT NULL,
    priority           INTEGER NOT NULL,
    run_at             INTEGER NOT NULL,
    attempts           INTEGER NOT NULL,
    max_attempts       INTEGER NOT NULL,
    expires_at         INTEGER,
    created_at         INTEGER NOT NULL,
    died_at            INTEGER NOT NULL,
    purge_at           INTEGER,
    visibility_timeout INTEGER NOT NULL,
    backoff_base       INTEGER NOT NULL,
    backoff_cap        INTEGER NOT NULL,
    retention          INTEGER,
    codec              TEXT    NOT NULL,
    headers            TEXT    NOT NULL,
    last_error         TEXT    NOT NULL,
    payload            BLOB    NOT NULL,
    CHECK ((purge_at IS NULL) = (retention IS NULL)),
    CHECK (typeof(payload) = 'blob')
);

-- Ends with the rowid: a page of a queue's dead jobs by id.
CREATE INDEX alkstore_dead_jobs_queue ON alkstore_dead_jobs (queue);

-- Dead jobs whose time is up (Q-5).
CREATE INDEX alkstore_dead_jobs_purge ON alkstore_dead_jobs (queue, purge_at) WHERE purge_at IS NOT NULL;

-- For people at a prompt: every job, under the twin's column names. Instants are UTC, durations hours:minutes:seconds, both to
-- the microsecond; payloads are text where they are JSON, and a hexadecimal literal otherwise.
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
    CASE codec WHEN 'json' THEN CAST(payload AS TEXT) ELSE 'x''' || hex(payload) || '''' END AS payload
FROM (
    SELECT
        id, queue, CASE WHEN token IS NULL THEN 'pending' ELSE 'processing' END AS state, priority, attempts,
        max_attempts, created_at, run_at, expires_at, worker_id, lease_until, NULL AS died_at, last_error,
        visibility_timeout, headers, codec, payload
    FROM alkstore_jobs
    UNION ALL
    SELECT
        id, queue, 'dead', priority, attempts, max_attempts, created_at, run_at, expires_at, NULL, NULL, died_at,
        last_error, visibility_timeout, headers, codec, payload
    FROM alkstore_dead_jobs
);
