-- Schema 1.2: results, what jobs have come to, for as long as each of them was told to keep it (Z-17).
--
-- Run like 001. Adding a column without a default rewrites nothing; its check is taken on trust for the rows that are there,
-- all of which have NULL, so that the table is locked for a moment only.

-- How long what the job comes to is kept, in microseconds; NULL: nothing is.
ALTER TABLE jobs ADD COLUMN keep_result bigint;
ALTER TABLE jobs ADD CONSTRAINT jobs_keep_result_is_over_0 CHECK (keep_result > 0) NOT VALID;
ALTER TABLE dead_jobs ADD COLUMN keep_result bigint;

-- Under the id that the job had. One that is dead has no row here: the dead table says so. Not called just results: an
-- application may well have put a table of that name into the schema by now, and the upgrade would fail for it.
CREATE TABLE job_results (
    id          bigint PRIMARY KEY,
    enqueued_at bigint NOT NULL,
    finished_at bigint NOT NULL,
    expires_at  bigint NOT NULL,
    attempts    integer NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    outcome     text COLLATE "C" NOT NULL CHECK (outcome IN ('succeeded', 'cancelled')),
    worker_id   text COLLATE "C",
    codec       text COLLATE "C",
    payload     bytea,
    CONSTRAINT job_results_outcome_has_its_payload
        CHECK ((outcome = 'succeeded') = (payload IS NOT NULL) AND (payload IS NULL) = (codec IS NULL))
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- What a sweep deletes.
CREATE INDEX job_results_expiry ON job_results (queue, expires_at);

CREATE OR REPLACE VIEW readable_jobs AS
SELECT
    j.id,
    j.queue,
    j.state,
    j.priority,
    j.attempts,
    j.max_attempts,
    to_timestamp(j.created_at / 1000000.0) AS created_at,
    to_timestamp(j.run_at / 1000000.0) AS run_at,
    to_timestamp(j.expires_at / 1000000.0) AS expires_at,
    j.worker_id,
    to_timestamp(j.lease_until / 1000000.0) AS claim_expires_at,
    to_timestamp(j.died_at / 1000000.0) AS died_at,
    j.last_error,
    make_interval(secs => j.visibility_timeout / 1000000.0) AS visibility_timeout,
    j.headers,
    j.codec,
    octet_length(j.payload) AS payload_bytes,
    readable_payload(j.payload) AS payload,
    make_interval(secs => j.keep_result / 1000000.0) AS keep_result
FROM (
    SELECT
        id, queue, CASE WHEN token IS NULL THEN 'pending' ELSE 'processing' END AS state, priority, attempts,
        max_attempts, created_at, run_at, expires_at, worker_id, lease_until, NULL::bigint AS died_at, last_error,
        visibility_timeout, headers, codec, payload, keep_result
    FROM jobs
    UNION ALL
    SELECT
        id, queue, 'dead', priority, attempts, max_attempts, created_at, run_at, expires_at, NULL, NULL, died_at,
        last_error, visibility_timeout, headers, codec, payload, keep_result
    FROM dead_jobs
) AS j;

CREATE VIEW readable_results AS
SELECT
    r.id,
    r.queue,
    r.outcome,
    r.attempts,
    to_timestamp(r.enqueued_at / 1000000.0) AS enqueued_at,
    to_timestamp(r.finished_at / 1000000.0) AS finished_at,
    to_timestamp(r.expires_at / 1000000.0) AS expires_at,
    r.worker_id,
    r.codec,
    octet_length(r.payload) AS result_bytes,
    readable_payload(r.payload) AS result
FROM job_results AS r;

COMMENT ON TABLE job_results IS 'What jobs came to that keep it; written by alkstore only. People read readable_results.';
COMMENT ON VIEW readable_results IS 'Every result that is kept, or not yet swept, as people read it.';
