"""The engine's statements: one constant each, in sections that come in the twin's order.

**Which jobs a claim may take** (``phase`` and ``next_at``). A claim takes the first n jobs of a queue by priority, run_at
and id, among those that are due, not leased and not expired. One index in that order would do, but a claim would then
read, and pass over, every job ahead of them that is scheduled for later, leased, or expired and not yet swept: a million
rows for one job. So each row says which of four phases it is in, as far as anybody has looked:

* 0 *ready*: it can be handed out now: pending and due, or lapsed with budget left; not expired. ``next_at`` is the
  instant at which it expires (NULL: never).
* 1 *waiting*: it becomes ready by the passing of time: pending and not yet due (``next_at`` is ``run_at``, or the expiry
  if that comes first), or leased with budget left (``next_at`` is ``lease_until + 1``, as the claim is valid until
  then).
* 2 *last lease*: leased, with no budget left. When it lapses it is buried, not handed out. ``next_at`` is NULL.
* 3 *past expiry*: never handed out any more; it waits for the sweep. ``next_at`` is NULL.

The claim reads the index of phase 0 and nothing else. What time has changed since is found by ``next_at <= now``, an index
range that holds just those rows: *ripening* gives them their new phase. A claim never picks while a row is left to
ripen, or the order would not be exact; one session at a time ripens a queue, and the others wait for it. Only rows that
somebody works on (a lapsed job inside an open ``handle.transaction()``) are passed over. A claim within a transaction that
stays open has the ripening done aside, on another connection, where one is free: its locks would last until the commit.
A leased job whose expiry passes stays where it is until its lease lapses. A clock that steps back leaves rows of phase 3
whose expiry lies ahead again: the claim finds them by an index of that phase, and sets them back.
Each statement that changes run_at, lease_until, token or expires_at sets both columns by the rule (``_PENDING_*`` and
``_LEASED_*`` below). Nothing that a user sees depends on them: ``STATS``, ``GET`` and ``LIST_*`` look at the job's own
columns, and the claim and the sweep check these once more, so that a clock which steps back cannot hand out or bury a
job before its time.

**Time.** ``{now}`` is the parameter ``now`` or, where it is NULL, ``statement_timestamp()`` in microseconds. It stands in
a CTE and is read by ``(SELECT now FROM clock)``, which the planner takes as a value known before the scan, so that an index
can use it.

**Locks.** READ COMMITTED throughout. Where several rows are locked, a materialised CTE locks them in id order first, and
re-checks their conditions on the row's latest version; the UPDATE or DELETE then finds them by id. Two such statements
wait for one another and never deadlock. Statements that pick whatever is there (claim, ripen, sweep) skip
locked rows instead, and so wait for nobody.

**Plans.** A CTE or ``ARRAY(SELECT ...)`` evaluates its LIMIT once; ``id IN (SELECT ... LIMIT n)`` may be run again for every
row by a nested loop, and lock more than n. Picked rows are found by ``id = ANY(ARRAY(...))``: no join for the planner to
choose a method for. Planning a claim costs as much as running it, so that plans are prepared, generic, and then kept: one
made while a queue is empty must still do when a million jobs lie in it. The settings in ``pool.py`` see to that.

**Names.** All are qualified: tables by the store's schema, functions and types by ``pg_catalog``, and operators get
operands of exactly the types that ``pg_catalog`` has them for, so that no ``search_path`` makes them mean something else.
Keywords (``bigint``, ``coalesce``, ``least``, ``extract``) are never looked up in it.

Differences from the twin, where a statement doesn't name its own: SQLite has one writer at a time and so neither row locks
nor ``SKIP LOCKED``, and it runs several statements one after another in one transaction where there is one here; its own
docstring says which.
"""

from __future__ import annotations

from typing import Final, LiteralString, cast

from psycopg import sql

from alkstore_postgres.channels import Channels

# --- fragments ---------------------------------------------------------------------------------------------------

_NOW: Final = (
    "coalesce(%(now)s::bigint, (extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000::numeric)::bigint)"
)

_LIVE: Final = """
    j.id, j.queue, CASE WHEN j.token IS NULL THEN 'pending' ELSE 'processing' END AS state, j.codec, j.payload, j.headers,
    j.priority, j.attempts, j.max_attempts, j.created_at, j.run_at, j.expires_at, j.visibility_timeout, j.backoff_base,
    j.backoff_cap, j.retention, j.worker_id, j.lease_until, j.token, j.last_error, NULL::bigint AS died_at,
    j.keep_result"""

_DEAD: Final = """
    d.id, d.queue, 'dead' AS state, d.codec, d.payload, d.headers, d.priority, d.attempts, d.max_attempts, d.created_at,
    d.run_at, d.expires_at, d.visibility_timeout, d.backoff_base, d.backoff_cap, d.retention,
    NULL::pg_catalog.text AS worker_id, NULL::bigint AS lease_until, NULL::bigint AS token, d.last_error, d.died_at,
    d.keep_result"""

# The rule of phase and next_at for a pending job: p has the job's run_at and expires_at, and now.
_PENDING_PHASE: Final = "CASE WHEN p.expires_at <= p.now THEN 3 WHEN p.run_at <= p.now THEN 0 ELSE 1 END"
_PENDING_NEXT: Final = """
    CASE WHEN p.expires_at <= p.now THEN NULL WHEN p.run_at <= p.now THEN p.expires_at
         ELSE least(p.run_at, p.expires_at) END"""
# The same for a leased job: p has the job's attempts (this one counted), max_attempts and lease_until.
_LEASED_PHASE: Final = "CASE WHEN p.attempts < p.max_attempts THEN 1 ELSE 2 END"
_LEASED_NEXT: Final = "CASE WHEN p.attempts < p.max_attempts THEN p.lease_until + 1 END"

# The move into the dead table (J-8): g has the deleted live rows with their died_at and reason.
_INTO_DEAD: Final = """
    INSERT INTO {dead_jobs} (
        id, queue, codec, payload, headers, priority, attempts, max_attempts, created_at, run_at, expires_at,
        visibility_timeout, backoff_base, backoff_cap, retention, last_error, died_at, purge_at,
        keep_result
    )
    SELECT
        g.id, g.queue, g.codec, g.payload, g.headers, g.priority, g.attempts, g.max_attempts, g.created_at, g.run_at,
        g.expires_at, g.visibility_timeout, g.backoff_base, g.backoff_cap, g.retention, g.reason, g.died_at,
        g.died_at + g.retention, g.keep_result
    FROM gone AS g
    RETURNING id"""

# What is left of jobs that keep it (Z-17): g has the deleted live rows. A tombstone has neither codec nor result.
_KEEP: Final = """
    INSERT INTO {job_results} (id, queue, outcome, attempts, enqueued_at, finished_at, expires_at, worker_id, codec, payload)
    SELECT
        g.id, g.queue, {outcome}, g.attempts, g.created_at, (SELECT now FROM clock),
        (SELECT now FROM clock) + g.keep_result, g.worker_id, {codec}, {result}
    FROM gone AS g
    WHERE g.keep_result IS NOT NULL
    RETURNING id"""

# The pick of a claim, but for its last conditions, and what it does to the picked rows.
_PICK: Final = """
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 0
      AND CASE WHEN j.lease_until IS NULL THEN j.run_at ELSE j.lease_until + 1 END <= (SELECT now FROM clock)
      AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))"""
_TAKE: Final = """
    UPDATE {jobs} AS j SET
        attempts = j.attempts + 1, worker_id = %(worker_id)s::pg_catalog.text,
        token = pg_catalog.nextval({claim_tokens}::pg_catalog.regclass) * 65536
            + pg_catalog.floor(pg_catalog.random() * 65536::double precision)::bigint,
        lease_until = (SELECT now FROM clock) + j.visibility_timeout,
        phase = CASE WHEN j.attempts + 1 < j.max_attempts THEN 1 ELSE 2 END,
        next_at = CASE WHEN j.attempts + 1 < j.max_attempts THEN (SELECT now FROM clock) + j.visibility_timeout + 1 END
    WHERE j.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
    RETURNING {live}"""

# --- statements --------------------------------------------------------------------------------------------------

# Z-12: named, whatever the defaults are.
BEGIN: Final[LiteralString] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# The database's clock.
NOW: Final[LiteralString] = "SELECT {now} AS now"

# Q-ENQ-1, O-3: one job. All of its instants come from one now.
INSERT_ONE: Final[LiteralString] = """
INSERT INTO {jobs} (
    queue, codec, payload, headers, priority, max_attempts, visibility_timeout, backoff_base, backoff_cap, retention,
    keep_result, created_at, run_at, expires_at, phase, next_at
)
SELECT
    %(queue)s::pg_catalog.text, %(codec)s::pg_catalog.text, %(payload)b::pg_catalog.bytea,
    %(headers)s::pg_catalog.text, %(priority)s::integer, %(max_attempts)s::integer, %(visibility_timeout)s::bigint,
    %(backoff_base)s::integer, %(backoff_cap)s::integer, %(retention)s::bigint, %(keep_result)s::bigint,
    p.now, p.run_at, p.expires_at, {pending_phase}, {pending_next}
FROM
    (
        SELECT
            c.now, CASE WHEN %(run_at_is_offset)s::boolean THEN c.now ELSE 0::bigint END + %(run_at)s::bigint AS run_at,
            c.now + %(expires_in)s::bigint AS expires_at
        FROM (SELECT {now} AS now) AS c
    ) AS p
RETURNING id
"""

# Q-ENQ-3: jobs that differ in nothing but the payload, which is the usual case. unnest() gives the payloads in their
# order, WITH ORDINALITY names it, and the ids are drawn after the sort. Differs from the twin, which runs one INSERT per
# job: there a statement costs microseconds, here a round trip.
INSERT: Final[LiteralString] = """
INSERT INTO {jobs} (
    queue, codec, payload, headers, priority, max_attempts, visibility_timeout, backoff_base, backoff_cap, retention,
    keep_result, created_at, run_at, expires_at, phase, next_at
)
SELECT
    %(queue)s::pg_catalog.text, %(codec)s::pg_catalog.text, r.payload, %(headers)s::pg_catalog.text, %(priority)s::integer,
    %(max_attempts)s::integer, %(visibility_timeout)s::bigint, %(backoff_base)s::integer, %(backoff_cap)s::integer,
    %(retention)s::bigint, %(keep_result)s::bigint, p.now, p.run_at, p.expires_at, {pending_phase}, {pending_next}
FROM
    (
        SELECT
            c.now, CASE WHEN %(run_at_is_offset)s::boolean THEN c.now ELSE 0::bigint END + %(run_at)s::bigint AS run_at,
            c.now + %(expires_in)s::bigint AS expires_at
        FROM (SELECT {now} AS now) AS c
    ) AS p,
    pg_catalog.unnest(%(payloads)b::pg_catalog.bytea[]) WITH ORDINALITY AS r(payload, place)
ORDER BY r.place
RETURNING id
"""

# The same for jobs of which each has stamps of its own.
INSERT_MIXED: Final[LiteralString] = """
INSERT INTO {jobs} (
    queue, codec, payload, headers, priority, max_attempts, visibility_timeout, backoff_base, backoff_cap, retention,
    keep_result, created_at, run_at, expires_at, phase, next_at
)
SELECT
    %(queue)s::pg_catalog.text, p.codec, p.payload, p.headers, p.priority, p.max_attempts, p.visibility_timeout,
    p.backoff_base, p.backoff_cap, p.retention, p.keep_result, p.now, p.run_at, p.expires_at, {pending_phase}, {pending_next}
FROM
    (
        SELECT
            r.*, c.now, CASE WHEN r.is_offset THEN c.now ELSE 0::bigint END + r.run_at_given AS run_at,
            c.now + r.expires_in AS expires_at
        FROM
            (SELECT {now} AS now) AS c,
            ROWS FROM (
                pg_catalog.unnest(%(codecs)s::pg_catalog.text[]), pg_catalog.unnest(%(payloads)b::pg_catalog.bytea[]),
                pg_catalog.unnest(%(headers)s::pg_catalog.text[]), pg_catalog.unnest(%(priorities)s::integer[]),
                pg_catalog.unnest(%(max_attempts)s::integer[]), pg_catalog.unnest(%(visibility_timeouts)s::bigint[]),
                pg_catalog.unnest(%(backoff_bases)s::integer[]), pg_catalog.unnest(%(backoff_caps)s::integer[]),
                pg_catalog.unnest(%(retentions)s::bigint[]), pg_catalog.unnest(%(run_ats)s::bigint[]),
                pg_catalog.unnest(%(offsets)s::boolean[]), pg_catalog.unnest(%(expires_in)s::bigint[]),
                pg_catalog.unnest(%(keep_results)s::bigint[])
            ) WITH ORDINALITY AS r(
                codec, payload, headers, priority, max_attempts, visibility_timeout, backoff_base, backoff_cap, retention,
                run_at_given, is_offset, expires_in, keep_result, place
            )
    ) AS p
ORDER BY p.place
RETURNING id
"""

# Q-CLAIM-2 to Q-CLAIM-5, the usual case in one statement. `due`, `lapsed` and `early` look whether something must be
# ripened, buried or set back first; if so nothing is picked (the NOT EXISTS are tested before the scan begins), and
# the executor does that and comes again. They don't lock, and so see what another session is just ripening: its rows
# are locked, but not claimed, and passing over them would hand out others before them (Q-CLAIM-3). The answer has one
# row at least, for the findings. Locks the picked rows, and skips locked ones: two claims never wait for one another. The
# picked rows' places can't change between the pick and the update, being locked. The update's own order is none, hence
# the ORDER BY at the end.
# A token is the sequence's next value with 16 random bits below: a crash of the server may undo what was committed with
# `durability="relaxed"`, the advance of the sequence included, and then the bits keep a lost claim's token from fitting
# its successor's.
CLAIM: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), due AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.next_at <= (SELECT now FROM clock)
    ORDER BY j.next_at LIMIT 1
), lapsed AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 2 AND j.lease_until < (SELECT now FROM clock)
    ORDER BY j.lease_until LIMIT 1
), early AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 3 AND j.expires_at > (SELECT now FROM clock)
    ORDER BY j.expires_at LIMIT 1
), picked AS MATERIALIZED (
{pick}
      AND NOT EXISTS (SELECT FROM due) AND NOT EXISTS (SELECT FROM lapsed) AND NOT EXISTS (SELECT FROM early)
    ORDER BY j.priority DESC, j.run_at, j.id LIMIT %(count)s::bigint FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
{take}
)
SELECT f.now, f.due OR f.early AS due, f.lapsed, c.*
FROM (
    SELECT
        (SELECT now FROM clock) AS now, EXISTS (SELECT FROM due) AS due, EXISTS (SELECT FROM lapsed) AS lapsed,
        EXISTS (SELECT FROM early) AS early
) AS f
LEFT JOIN claimed AS c ON true
ORDER BY c.priority DESC, c.run_at, c.id
"""

# The same once that was done, in the same transaction. What is still due and can't be locked is held by somebody who works
# on it (a lapsed job inside an open transaction, say), and holds nobody up; what is due and can be locked has come
# free since, and is ripened by the next unit.
CLAIM_RIPENED: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), due AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.next_at <= (SELECT now FROM clock)
    ORDER BY j.next_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
{pick}
      AND NOT EXISTS (SELECT FROM due)
    ORDER BY j.priority DESC, j.run_at, j.id LIMIT %(count)s::bigint FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
{take}
)
SELECT f.now, f.due, false AS lapsed, c.*
FROM (SELECT (SELECT now FROM clock) AS now, EXISTS (SELECT FROM due) AS due) AS f
LEFT JOIN claimed AS c ON true
ORDER BY c.priority DESC, c.run_at, c.id
"""

# One session at a time ripens a queue; the others wait here until it has committed, and then find the rows ready. Without
# that they would pass over its locked rows and hand out others before them. Held until the transaction ends, which is
# one bounded unit: whoever holds it waits for nobody (SKIP LOCKED), so that no circle of waiting can close. A process that
# is stopped in the middle of it would hold up all the others: the server ends its session after a while.
LOCK_RIPENING: Final[LiteralString] = """
SELECT
    pg_catalog.set_config('idle_in_transaction_session_timeout'::pg_catalog.text, '5s'::pg_catalog.text, true) AS patience,
    pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(
        %(queue)s::pg_catalog.text COLLATE pg_catalog."C", {claim_tokens}::pg_catalog.regclass::pg_catalog.oid::bigint
    )) IS NULL AS locked
"""

# Ripening: gives the rows whose time has come, the earliest first, their new phase. They are pending or lapsed, so that
# they are ready unless their expiry has passed.
RIPEN: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), picked AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.next_at <= (SELECT now FROM clock)
    ORDER BY j.next_at LIMIT %(limit)s::bigint FOR NO KEY UPDATE SKIP LOCKED
), ripened AS (
    UPDATE {jobs} AS j SET
        phase = CASE WHEN j.expires_at <= (SELECT now FROM clock) THEN 3 ELSE 0 END,
        next_at = CASE WHEN j.expires_at <= (SELECT now FROM clock) THEN NULL ELSE j.expires_at END
    WHERE j.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
    RETURNING j.id
)
SELECT (SELECT now FROM clock) AS now, (SELECT pg_catalog.count(*) FROM ripened) AS moved
"""

# Sets back what was set aside as expired by a clock that has stepped back since: to the phase of a pending job, or of a
# lease that is valid again (budget was left with it, or the phase would not have been 3).
UNEXPIRE: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), picked AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 3 AND j.expires_at > (SELECT now FROM clock)
    ORDER BY j.expires_at LIMIT %(limit)s::bigint FOR NO KEY UPDATE SKIP LOCKED
), back AS (
    UPDATE {jobs} AS j SET
        phase = CASE
            WHEN j.lease_until >= (SELECT now FROM clock) OR j.lease_until IS NULL AND j.run_at > (SELECT now FROM clock) THEN 1
            ELSE 0
        END,
        next_at = CASE
            WHEN j.lease_until >= (SELECT now FROM clock) THEN j.lease_until + 1
            WHEN j.lease_until IS NULL AND j.run_at > (SELECT now FROM clock) THEN least(j.run_at, j.expires_at)
            ELSE j.expires_at
        END
    WHERE j.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
    RETURNING j.id
)
SELECT (SELECT now FROM clock) AS now, (SELECT pg_catalog.count(*) FROM back) AS moved
"""

# Q-CLAIM-6: moves lapsed jobs whose budget is spent to the dead table, the oldest deadline first.
BURY_LAPSED: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), picked AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 2 AND j.lease_until < (SELECT now FROM clock)
    ORDER BY j.lease_until LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {jobs} AS j
    WHERE j.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
    RETURNING j.*, (SELECT now FROM clock) AS died_at, %(exhausted)s::pg_catalog.text AS reason
)
{into_dead}
"""

# the job of a claim that is current, whatever its deadline.
RECALL: Final[LiteralString] = """
SELECT {live} FROM {jobs} AS j
WHERE j.id = %(id)s::bigint AND j.queue = %(queue)s::pg_catalog.text
  AND j.token = %(token)s::bigint
"""

# J-10: locks the row until the transaction ends, so that nobody can reclaim it. Waits for a lock.
HOLD: Final[LiteralString] = """
SELECT j.id FROM {jobs} AS j
WHERE j.id = %(id)s::bigint AND j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= {now}
  AND j.token = %(token)s::bigint
FOR UPDATE
"""

# J-10: the final ack, judged by the token alone. A job that keeps its result is refused here and in ACK*: what deletes it has
# to write the result as well.
CONCLUDE: Final[LiteralString] = """
DELETE FROM {jobs} AS j
WHERE j.id = %(id)s::bigint AND j.queue = %(queue)s::pg_catalog.text
  AND j.token = %(token)s::bigint AND j.keep_result IS NULL
RETURNING j.id
"""

# J-2: one claim, which is the usual case. Waits for a lock; the condition is then tested on the latest version.
ACK_ONE: Final[LiteralString] = """
DELETE FROM {jobs} AS j
WHERE j.id = %(id)s::bigint AND j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= {now}
  AND (%(token)s::bigint IS NULL OR j.token = %(token)s::bigint) AND j.keep_result IS NULL
RETURNING j.id
"""

# many claims. Locks in id order, and waits for locks.
ACK: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT j.id
    FROM ROWS FROM (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::bigint[])) AS r(id, token)
    JOIN {jobs} AS j ON j.id = r.id AND (r.token IS NULL OR j.token = r.token)
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= (SELECT now FROM clock) AND j.keep_result IS NULL
    ORDER BY j.id FOR UPDATE OF j
)
DELETE FROM {jobs} AS j
WHERE j.id = ANY (ARRAY(SELECT l.id FROM locked AS l))
RETURNING j.id
"""

# J-3: one claim. Waits for a lock.
EXTEND_ONE: Final[LiteralString] = """
UPDATE {jobs} AS j SET lease_until = p.lease_until, phase = {leased_phase}, next_at = {leased_next}
FROM (
    SELECT
        k.id, k.attempts, k.max_attempts, k.lease_until AS before,
        (SELECT {now}) + coalesce(%(extension)s::bigint, k.visibility_timeout) AS lease_until
    FROM {jobs} AS k
    WHERE k.id = %(id)s::bigint AND k.queue = %(queue)s::pg_catalog.text AND k.lease_until >= (SELECT {now})
      AND (%(token)s::bigint IS NULL OR k.token = %(token)s::bigint)
    FOR NO KEY UPDATE
) AS p
WHERE j.id = p.id
RETURNING j.id, j.lease_until, j.lease_until < p.before
"""

# J-3 for many claims at once. Skips locked rows: one job held by an open transaction must not keep the leases of all
# the others from being extended. What was skipped isn't in the answer, and can be asked for singly.
EXTEND: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT
        j.id, j.attempts, j.max_attempts, j.lease_until AS before,
        (SELECT now FROM clock) + coalesce(%(extension)s::bigint, j.visibility_timeout) AS lease_until
    FROM ROWS FROM (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::bigint[])) AS r(id, token)
    JOIN {jobs} AS j ON j.id = r.id AND (r.token IS NULL OR j.token = r.token)
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= (SELECT now FROM clock)
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE {jobs} AS j SET lease_until = p.lease_until, phase = {leased_phase}, next_at = {leased_next}
FROM locked AS p
WHERE j.id = p.id
RETURNING j.id, j.lease_until, j.lease_until < p.before
"""

# J-4: pending again where budget is left, else dead; in one statement, so that it is one or the other (J-8). Locks in id
# order, and waits for locks.
RETRY: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT j.id, j.attempts < j.max_attempts AS budget, r.error, c.now, c.now + r.delay AS run_at, j.expires_at
    FROM clock AS c, ROWS FROM (
        pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::bigint[]),
        pg_catalog.unnest(%(delays)s::bigint[]), pg_catalog.unnest(%(errors)s::pg_catalog.text[])
    ) AS r(id, token, delay, error)
    JOIN {jobs} AS j ON j.id = r.id AND j.token = r.token
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= (SELECT now FROM clock)
    ORDER BY j.id FOR UPDATE OF j
), retried AS (
    UPDATE {jobs} AS j SET
        token = NULL, worker_id = NULL, lease_until = NULL, run_at = p.run_at, last_error = coalesce(p.error, j.last_error),
        phase = {pending_phase}, next_at = {pending_next}
    FROM locked AS p
    WHERE j.id = p.id AND p.budget
    RETURNING j.id
), gone AS (
    DELETE FROM {jobs} AS j
    USING locked AS p
    WHERE j.id = p.id AND NOT p.budget
    RETURNING j.*, p.now AS died_at, coalesce(p.error, %(exhausted)s::pg_catalog.text) AS reason
), buried AS (
    {into_dead}
)
SELECT r.id FROM retried AS r UNION ALL SELECT b.id FROM buried AS b
"""

# J-5, J-8: moves to the dead table. Locks in id order, and waits for locks.
BURY: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT j.id, r.error, c.now
    FROM clock AS c, ROWS FROM (
        pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::bigint[]),
        pg_catalog.unnest(%(errors)s::pg_catalog.text[])
    ) AS r(id, token, error)
    JOIN {jobs} AS j ON j.id = r.id AND j.token = r.token
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= (SELECT now FROM clock)
    ORDER BY j.id FOR UPDATE OF j
), gone AS (
    DELETE FROM {jobs} AS j
    USING locked AS p
    WHERE j.id = p.id
    RETURNING j.*, p.now AS died_at, p.error AS reason
)
{into_dead}
"""

# J-6: pending again, in the old place unless delayed. Locks in id order, and waits for locks.
RELEASE: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT j.id, c.now, coalesce(c.now + r.delay, j.run_at) AS run_at, j.expires_at
    FROM clock AS c, ROWS FROM (
        pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::bigint[]),
        pg_catalog.unnest(%(delays)s::bigint[])
    ) AS r(id, token, delay)
    JOIN {jobs} AS j ON j.id = r.id AND j.token = r.token
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= (SELECT now FROM clock)
    ORDER BY j.id FOR NO KEY UPDATE OF j
)
UPDATE {jobs} AS j SET
    token = NULL, worker_id = NULL, lease_until = NULL, attempts = j.attempts - 1, run_at = p.run_at,
    phase = {pending_phase}, next_at = {pending_next}
FROM locked AS p
WHERE j.id = p.id
RETURNING j.id
"""

# deletes pending and processing jobs. Locks in id order, and waits for locks: against an open transaction of the
# job's worker, the first to commit wins (Z-7). Leaves tombstones (Z-17).
CANCEL: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.id = ANY (%(ids)s::bigint[]) AND j.queue = %(queue)s::pg_catalog.text
    ORDER BY j.id FOR UPDATE
), gone AS (
    DELETE FROM {jobs} AS j
    WHERE j.id = ANY (ARRAY(SELECT l.id FROM locked AS l))
    RETURNING j.*
), kept AS (
    {leave_tombstones}
)
SELECT g.id, g.keep_result IS NOT NULL AS kept FROM gone AS g
"""

# live or dead. One statement has one snapshot, in which a job that is being moved is in one table or the other.
GET: Final[LiteralString] = """
SELECT {live} FROM {jobs} AS j
WHERE j.id = %(id)s::bigint AND (%(queue)s::pg_catalog.text IS NULL OR j.queue = %(queue)s::pg_catalog.text)
UNION ALL
SELECT {dead} FROM {dead_jobs} AS d
WHERE d.id = %(id)s::bigint AND (%(queue)s::pg_catalog.text IS NULL OR d.queue = %(queue)s::pg_catalog.text)
"""

# a page of the live jobs, all of them or (held) the pending or processing ones; of the dead ones; and of both.
LIST_LIVE: Final[LiteralString] = """
SELECT {live} FROM {jobs} AS j
WHERE j.queue = %(queue)s::pg_catalog.text AND j.id > %(after)s::bigint AND (j.token IS NOT NULL) = %(held)s::boolean
ORDER BY j.id LIMIT %(limit)s::bigint
"""

LIST_DEAD: Final[LiteralString] = """
SELECT {dead} FROM {dead_jobs} AS d
WHERE d.queue = %(queue)s::pg_catalog.text AND d.id > %(after)s::bigint
ORDER BY d.id LIMIT %(limit)s::bigint
"""

LIST_ALL: Final[LiteralString] = """
SELECT * FROM (
    (
        SELECT {live} FROM {jobs} AS j
        WHERE j.queue = %(queue)s::pg_catalog.text AND j.id > %(after)s::bigint
        ORDER BY j.id LIMIT %(limit)s::bigint
    )
    UNION ALL
    (
        SELECT {dead} FROM {dead_jobs} AS d
        WHERE d.queue = %(queue)s::pg_catalog.text AND d.id > %(after)s::bigint
        ORDER BY d.id LIMIT %(limit)s::bigint
    )
) AS a
ORDER BY a.id LIMIT %(limit)s::bigint
"""

# Q-6: the rows as they stand, by the jobs' own columns.
STATS: Final[LiteralString] = """
SELECT
    pg_catalog.count(*) FILTER (WHERE j.token IS NULL AND j.run_at <= c.now) AS ready,
    pg_catalog.count(*) FILTER (WHERE j.token IS NULL AND j.run_at > c.now) AS scheduled,
    pg_catalog.count(*) FILTER (WHERE j.token IS NOT NULL) AS processing,
    (SELECT pg_catalog.count(*) FROM {dead_jobs} AS d WHERE d.queue = %(queue)s::pg_catalog.text) AS dead,
    pg_catalog.min(j.run_at) FILTER (WHERE j.token IS NULL AND j.run_at <= c.now) AS oldest_ready_at,
    c.now
FROM (SELECT {now} AS now) AS c
LEFT JOIN {jobs} AS j ON j.queue = %(queue)s::pg_catalog.text
GROUP BY c.now
"""

# W-4: when the next claim may find something. The timer's first entry may be a ready job's expiry: too early does no
# harm. A lapse of the last lease counts, too: a claim then buries it.
NEXT_DUE: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT c.now, CASE
    WHEN EXISTS (
{pick}
    ) THEN c.now
    ELSE least(
        (
            SELECT j.next_at FROM {jobs} AS j
            WHERE j.queue = %(queue)s::pg_catalog.text AND j.next_at IS NOT NULL
            ORDER BY j.next_at LIMIT 1
        ),
        (
            SELECT j.lease_until + 1 FROM {jobs} AS j
            WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 2
            ORDER BY j.lease_until LIMIT 1
        )
    )
END AS due
FROM clock AS c
"""

# W-1: sent at the commit. Takes a lock of the whole database at that moment, and until it is done.
NOTIFY: Final[LiteralString] = (
    "SELECT pg_catalog.pg_notify(%(channel)s::pg_catalog.text, %(payload)s::pg_catalog.text) IS NULL AS sent"
)

# The same on one channel for many (W-4, Z-14), within a transaction that does something else as well.
RING_WITHIN: Final[LiteralString] = """
SELECT pg_catalog.pg_notify(%(channel)s::pg_catalog.text, r.payload) IS NULL AS sent
FROM pg_catalog.unnest(%(payloads)s::pg_catalog.text[]) AS r(payload)
"""

# In a transaction of its own, whose commit nobody waits for to be on the disk: with the lock of the whole database held, two
# hundred times a second, that would hold up those who enqueue. What a crash of the server undoes of it is nothing.
RING: Final[LiteralString] = """
SELECT
    pg_catalog.set_config('synchronous_commit'::pg_catalog.text, 'off'::pg_catalog.text, true) AS durability,
    pg_catalog.pg_notify(%(channel)s::pg_catalog.text, r.payload) IS NULL AS sent
FROM pg_catalog.unnest(%(payloads)s::pg_catalog.text[]) AS r(payload)
"""

# sorted by code point, which in UTF-8 is the order of the bytes. A queue may have nothing but results: a sweep of all
# queues is to find it.
QUEUES: Final[LiteralString] = """
SELECT a.queue
FROM (SELECT j.queue FROM {jobs} AS j UNION SELECT d.queue FROM {dead_jobs} AS d UNION SELECT r.queue FROM {job_results} AS r) AS a
ORDER BY a.queue COLLATE pg_catalog."C"
"""

# Q-5, Q-CLAIM-6: moves expired jobs, and lapsed ones whose budget is spent. Skips locked rows: whoever holds one is
# deciding about that job.
SWEEP: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), expired AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.expires_at <= (SELECT now FROM clock)
    ORDER BY j.expires_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
), exhausted AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 2 AND j.lease_until < (SELECT now FROM clock)
      AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
    ORDER BY j.lease_until LIMIT %(limit)s::bigint - (SELECT pg_catalog.count(*) FROM expired) FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {jobs} AS j
    WHERE j.id = ANY (ARRAY(SELECT e.id FROM expired AS e UNION ALL SELECT x.id FROM exhausted AS x))
    RETURNING j.*, (SELECT now FROM clock) AS died_at, CASE
        WHEN j.expires_at <= (SELECT now FROM clock) THEN %(expired)s::pg_catalog.text ELSE %(exhausted)s::pg_catalog.text
    END AS reason
), moved AS (
    {into_dead}
)
SELECT (SELECT now FROM clock) AS now, (SELECT pg_catalog.count(*) FROM moved) AS moved
"""

# deletes dead jobs past their retention. Skips locked rows.
FORGET: Final[LiteralString] = """
WITH picked AS MATERIALIZED (
    SELECT d.id FROM {dead_jobs} AS d
    WHERE d.queue = %(queue)s::pg_catalog.text AND d.purge_at <= (SELECT {now})
    ORDER BY d.purge_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM {dead_jobs} AS d
WHERE d.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
RETURNING d.id
"""

# the dead job is pending again under its id. Locks in id order, and waits: of several who ask, one finds it.
REVIVE: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT d.id FROM {dead_jobs} AS d
    WHERE d.id = ANY (%(ids)s::bigint[]) AND d.queue = %(queue)s::pg_catalog.text
    ORDER BY d.id FOR UPDATE
), gone AS (
    DELETE FROM {dead_jobs} AS d
    WHERE d.id = ANY (ARRAY(SELECT l.id FROM locked AS l))
    RETURNING d.*
)
INSERT INTO {jobs} (
    id, queue, codec, payload, headers, priority, attempts, max_attempts, created_at, run_at, expires_at,
    visibility_timeout, backoff_base, backoff_cap, retention, last_error, keep_result, phase, next_at
)
SELECT
    g.id, g.queue, g.codec, g.payload, g.headers, g.priority, 0, g.max_attempts, g.created_at, c.now, NULL,
    g.visibility_timeout, g.backoff_base, g.backoff_cap, g.retention, g.last_error, g.keep_result, 0, NULL
FROM gone AS g, clock AS c
RETURNING id
"""

# deletes pending or (held) processing jobs. One branch per phase, as each has an index of its own; the LIMIT at the
# end stops them as soon as it has enough. Locks what they found in id order, and waits for locks: a purge that passed over
# a job in somebody's open transaction would leave it behind and say nothing. Of those waited for some may be gone or in
# another state by then, so that how many were found is in the answer as well. Leaves tombstones (Z-17).
PURGE_LIVE: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), ready AS (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 0 AND (j.token IS NOT NULL) = %(held)s::boolean
    LIMIT %(limit)s::bigint
), waiting AS (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 1 AND j.next_at IS NOT NULL
      AND (j.token IS NOT NULL) = %(held)s::boolean
    LIMIT %(limit)s::bigint
), last_lease AS (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 2 AND %(held)s::boolean
    LIMIT %(limit)s::bigint
), past_expiry AS (
    SELECT j.id FROM {jobs} AS j
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.phase = 3 AND j.expires_at IS NOT NULL
      AND (j.token IS NOT NULL) = %(held)s::boolean
    LIMIT %(limit)s::bigint
), found AS MATERIALIZED (
    SELECT a.id FROM (
        SELECT r.id FROM ready AS r
        UNION ALL SELECT w.id FROM waiting AS w
        UNION ALL SELECT l.id FROM last_lease AS l
        UNION ALL SELECT x.id FROM past_expiry AS x
    ) AS a
    LIMIT %(limit)s::bigint
), locked AS MATERIALIZED (
    SELECT j.id FROM {jobs} AS j
    WHERE j.id = ANY (ARRAY(SELECT f.id FROM found AS f)) AND (j.token IS NOT NULL) = %(held)s::boolean
    ORDER BY j.id FOR UPDATE
), gone AS (
    DELETE FROM {jobs} AS j
    WHERE j.id = ANY (ARRAY(SELECT l.id FROM locked AS l))
    RETURNING j.*
), kept AS (
    {leave_tombstones}
)
SELECT (SELECT pg_catalog.count(*) FROM found) AS found, (SELECT pg_catalog.count(*) FROM gone) AS deleted
"""

# deletes dead jobs. Locks in id order, and waits for locks; what is gone by then doesn't count towards the limit.
PURGE_DEAD: Final[LiteralString] = """
WITH found AS MATERIALIZED (
    SELECT d.id FROM {dead_jobs} AS d
    WHERE d.queue = %(queue)s::pg_catalog.text
    ORDER BY d.id LIMIT %(limit)s::bigint FOR UPDATE
), gone AS (
    DELETE FROM {dead_jobs} AS d
    WHERE d.id = ANY (ARRAY(SELECT f.id FROM found AS f))
    RETURNING d.id
)
SELECT (SELECT pg_catalog.count(*) FROM found) AS found, (SELECT pg_catalog.count(*) FROM gone) AS deleted
"""

# --- results (Z-17) ----------------------------------------------------------------------------------------------

# J-2, Q-2: as ACK, of jobs of which some keep their results: what each came to is written as it is deleted. Locks in id
# order, and waits for locks. Differs from the twin, which writes one after the other.
ACK_KEEPING: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), locked AS MATERIALIZED (
    SELECT j.id, r.result
    FROM ROWS FROM (
        pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::bigint[]),
        pg_catalog.unnest(%(payloads)b::pg_catalog.bytea[])
    ) AS r(id, token, result)
    JOIN {jobs} AS j ON j.id = r.id AND (r.token IS NULL OR j.token = r.token)
    WHERE j.queue = %(queue)s::pg_catalog.text AND j.lease_until >= (SELECT now FROM clock)
    ORDER BY j.id FOR UPDATE OF j
), gone AS (
    DELETE FROM {jobs} AS j
    USING locked AS p
    WHERE j.id = p.id
    RETURNING j.id, j.queue, j.attempts, j.created_at, j.worker_id, j.keep_result, p.result
), kept AS (
    {keep_results}
)
SELECT g.id, g.keep_result IS NOT NULL AS kept FROM gone AS g
"""

# J-10: the same, judged by the token alone.
CONCLUDE_KEEPING: Final[LiteralString] = """
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), gone AS (
    DELETE FROM {jobs} AS j
    WHERE j.id = %(id)s::bigint AND j.queue = %(queue)s::pg_catalog.text AND j.token = %(token)s::bigint
    RETURNING
        j.id, j.queue, j.attempts, j.created_at, j.worker_id, j.keep_result, %(payload)b::pg_catalog.bytea AS result
), kept AS (
    {keep_results}
)
SELECT g.id, g.keep_result IS NOT NULL AS kept FROM gone AS g
"""

# What a job has come to: one statement has one snapshot, in which it is in one table. Only results' payloads are read.
RESULT: Final[LiteralString] = """
SELECT
    r.id, r.queue, r.outcome, r.codec, r.payload, r.attempts, r.finished_at, r.expires_at, r.worker_id,
    NULL::pg_catalog.text AS error, NULL::bigint AS keep_result
FROM {job_results} AS r
WHERE r.id = %(id)s::bigint AND (%(queue)s::pg_catalog.text IS NULL OR r.queue = %(queue)s::pg_catalog.text)
  AND r.expires_at > (SELECT {now})
UNION ALL
SELECT j.id, j.queue, NULL, NULL, NULL, j.attempts, NULL, NULL, j.worker_id, NULL, j.keep_result
FROM {jobs} AS j
WHERE j.id = %(id)s::bigint AND (%(queue)s::pg_catalog.text IS NULL OR j.queue = %(queue)s::pg_catalog.text)
UNION ALL
SELECT d.id, d.queue, 'failed', NULL, NULL, d.attempts, d.died_at, d.purge_at, NULL, d.last_error, d.keep_result
FROM {dead_jobs} AS d
WHERE d.id = %(id)s::bigint AND (%(queue)s::pg_catalog.text IS NULL OR d.queue = %(queue)s::pg_catalog.text)
"""

# Deletes results past their time. Skips locked rows.
PRUNE_RESULTS: Final[LiteralString] = """
WITH picked AS MATERIALIZED (
    SELECT r.id FROM {job_results} AS r
    WHERE r.queue = %(queue)s::pg_catalog.text AND r.expires_at <= (SELECT {now})
    ORDER BY r.expires_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM {job_results} AS r
WHERE r.id = ANY (ARRAY(SELECT p.id FROM picked AS p))
RETURNING r.id
"""

# --- schema version (S-2, Z-13) ----------------------------------------------------------------------------------

# Whether the schema is there (one row), and the version's table in it. The catalogs can be read by everybody.
SCHEMA_PRESENT: Final[LiteralString] = """
SELECT n.oid, EXISTS (
    SELECT FROM pg_catalog.pg_class AS c WHERE c.relnamespace = n.oid AND c.relname = 'schema_version'::pg_catalog.name
)
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = %(schema)s::pg_catalog.text::pg_catalog.name
"""

SCHEMA_CREATE: Final[LiteralString] = """
CREATE TABLE {schema_version} (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    major integer NOT NULL,
    minor integer NOT NULL
)
"""

SCHEMA_READ: Final[LiteralString] = "SELECT v.major, v.minor FROM {schema_version} AS v"

SCHEMA_WRITE: Final[LiteralString] = """
INSERT INTO {schema_version} (major, minor) VALUES (%(major)s, %(minor)s)
ON CONFLICT (only_row) DO UPDATE SET major = excluded.major, minor = excluded.minor
"""

# --- joined connections (T-3) ------------------------------------------------------------------------------------

# Which server and which database a connection is to.
PLACE: Final[LiteralString] = """
SELECT pg_catalog.pg_postmaster_start_time(), d.oid
FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()
"""

# --- health (Q-8) ------------------------------------------------------------------------------------------------

# The oldest snapshot that holds back the clean-up of dead rows in this database, by age in transactions only where it
# has no clock: a prepared transaction has one, a replication slot has not. A role that may not look sees its own alone.
HEALTH: Final[LiteralString] = """
SELECT
    {now} AS now,
    (
        SELECT (extract(epoch FROM pg_catalog.max(pg_catalog.clock_timestamp() - a.since)) * 1000000::numeric)::bigint
        FROM (
            SELECT s.xact_start AS since FROM pg_catalog.pg_stat_activity AS s
            WHERE s.datname = pg_catalog.current_database() AND s.backend_xmin IS NOT NULL
              AND s.pid <> pg_catalog.pg_backend_pid() AND s.xact_start IS NOT NULL
            UNION ALL
            SELECT p.prepared FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = pg_catalog.current_database()
        ) AS a
    ) AS oldest_snapshot
"""

WAL_BYTES: Final[LiteralString] = "SELECT pg_catalog.sum(w.size)::bigint AS bytes FROM pg_catalog.pg_ls_waldir() AS w"


# --- composition -------------------------------------------------------------------------------------------------


class Statements:
    """The statements with the identifiers of one schema in them, each composed once.

    As bytes, which the driver takes as they are, to be executed with parameters always, be it an empty set. They are
    kept short enough (below 4,096 bytes) for the driver to keep what it has parsed of them.
    """

    def __init__(self, schema: str) -> None:
        """Take the schema's name, any text."""

        def name(relation: LiteralString) -> sql.Composable:
            return _verbatim(sql.Identifier(schema, relation))

        fragments: dict[str, sql.Composable] = {
            "jobs": name("jobs"),
            "dead_jobs": name("dead_jobs"),
            "job_results": name("job_results"),
            "schema_version": name("schema_version"),
            # The name as a text: nextval() takes what the parser makes of it.
            "claim_tokens": _verbatim(sql.Literal(sql.Identifier(schema, "claim_tokens").as_string())),
            "now": sql.SQL(_NOW),
            "live": sql.SQL(_LIVE),
            "dead": sql.SQL(_DEAD),
            "pending_phase": sql.SQL(_PENDING_PHASE),
            "pending_next": sql.SQL(_PENDING_NEXT),
            "leased_phase": sql.SQL(_LEASED_PHASE),
            "leased_next": sql.SQL(_LEASED_NEXT),
        }
        fragments["pick"] = sql.SQL(_PICK).format(jobs=fragments["jobs"])
        fragments["take"] = sql.SQL(_TAKE).format(
            jobs=fragments["jobs"], claim_tokens=fragments["claim_tokens"], live=fragments["live"]
        )
        fragments["into_dead"] = sql.SQL(_INTO_DEAD).format(dead_jobs=fragments["dead_jobs"])
        fragments["leave_tombstones"] = sql.SQL(_KEEP).format(
            job_results=fragments["job_results"],
            outcome=sql.SQL("'cancelled'"),
            codec=sql.SQL("NULL::pg_catalog.text"),
            result=sql.SQL("NULL::pg_catalog.bytea"),
        )
        fragments["keep_results"] = sql.SQL(_KEEP).format(
            job_results=fragments["job_results"],
            outcome=sql.SQL("'succeeded'"),
            codec=sql.SQL("%(codec)s::pg_catalog.text"),
            result=sql.SQL("g.result"),
        )
        self._fragments = fragments
        self.channels: Final = Channels(schema)
        """The schema's channels, as the server calls them."""
        self._composed: dict[str, bytes] = {}

    def __getitem__(self, statement: LiteralString) -> bytes:
        """Return the statement, ready to be executed."""
        composed = self._composed.get(statement)
        if composed is None:
            composed = self._composed[statement] = sql.SQL(statement).format(**self._fragments).as_bytes()
        return composed


def _verbatim(part: sql.Composable) -> sql.Composable:
    """Keep the driver from taking a ``%`` in a name for a placeholder."""
    # Quoted by the driver already; it asks for a literal to keep others from being careless.
    return sql.SQL(cast(LiteralString, part.as_string().replace("%", "%%")))
