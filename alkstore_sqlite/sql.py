"""Every statement of the queue operations, and why the claim reads only what it hands out.

**The claim, and what it doesn't read.** The order of hand-out is priority, then ``run_at``, then id (Q-CLAIM-3). One
index in that order over all jobs would do, were it not for those that stand in it and can't be handed out yet: with a
million jobs scheduled for tomorrow at a higher priority, each claim would walk over a million entries. So what can be
handed out is kept apart from what can't, by a *phase* in the row:

* 0, ready: to be handed out now. Pending and due, or lapsed with budget left; not expired.
* 1, waiting: will be ready by the passing of time alone. Pending and not yet due, or leased with budget left.
* 2, last lease: leased, and the budget spent with it. When it lapses, the job is to be buried.
* 3, past expiry: not handed out; the sweep comes for it. (A leased job whose expiry passes keeps its phase until its
  lease has lapsed.)

``next_at`` is when the row is to be looked at again: for a ready job its expiry, for a waiting one the instant at
which it is due, expires, or has lapsed (``lease_until + 1``, because a claim is valid *while* now <= deadline); else NULL.
Five partial indexes follow from it: *ready*, *timer* (``next_at``), *last*, *expiry* and *expired* (phase 3 by expiry); a
plain ready job is in one of them. A claim then is three bounded probes:

1. *Ripen*: rows whose ``next_at`` has come get their new phase, a bounded number per transaction; so do those of phase 3
   whose expiry lies ahead, which a clock that steps back leaves. As long as one is left, nothing is picked, or the order
   would not be exact.
2. *Bury*: lapsed last leases go to the dead table, a bounded number, the oldest deadline first (Q-CLAIM-6).
3. *Pick*: the first n of the ready index.

Phase and ``next_at`` are bookkeeping. Nothing that can be observed (counts, records, refusals) depends on them, and
the pick checks the instants again: a clock that steps back leaves rows ripened too early. Those made ready must not
be handed out (Q-CLAIM-4), and stay where they are until their time comes; those set aside as expired must be, and are
set back. That costs a claim about half a microsecond, and only expired rows have the index entry. The rule is written
once below, as ``phase_of`` and ``next_of``; whatever changes ``run_at``, ``lease_until``, ``token`` or ``expires_at``
sets both by it.

**Shapes that SQLite wants.** ``UPDATE ... WHERE id IN (SELECT ... LIMIT n)`` is five times slower at n = 1 than a SELECT
and an UPDATE by id, and the write lock, held from BEGIN IMMEDIATE on, makes the two as good as one. Lists of ids go in as JSON.
INDEXED BY makes the plan a matter of these lines and not of statistics: without its index, a statement fails
rather than walks.

**Locks.** Whatever writes runs between BEGIN IMMEDIATE and COMMIT, so that there is one writer at a time and nothing
here locks rows. Statements that only read see one snapshot each.

Values are always parameters, numbered. Tables are named with their schema, as an application's temporary table of the same
name would come first on its connection; and columns are selected as expressions (``values``).

**The twin.** The sections come in its order, and what is one statement in both has one name. The twin does in one
statement, for the sake of a round trip and of row locks, what here is a choice followed by an act upon ids: its CLAIM
is CLAIM_PICK and CLAIM_TAKE, its RIPEN is CLAIM_DUE and CLAIM_RIPEN, its BURY_LAPSED is CLAIM_SPENT and BURY, its ACK
is JUDGE and DELETE_LIVE, its SWEEP is SWEEP_EXPIRED, CLAIM_SPENT and BURY, its FORGET is SWEEP_RETIRED and
DELETE_DEAD, its CANCEL and its PURGE_LIVE a choice and DELETE_LIVE. Its LIST_LIVE is two here, so that the state is
no parameter of the plan.
"""

from __future__ import annotations

from typing import Final, LiteralString

# --- transactions ------------------------------------------------------------------------------------------------

BEGIN: Final = "BEGIN IMMEDIATE"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
# Takes the write lock within a transaction that was begun without: a write, although of nothing.
LOCK: Final = "UPDATE main.alkstore_schema_version SET major = major WHERE false"


# --- the rule ----------------------------------------------------------------------------------------------------


def phase_of(run_at: LiteralString, expires_at: LiteralString, now: LiteralString) -> LiteralString:
    """Return the phase of a job that is pending, or whose lease has lapsed with budget left."""
    return (
        "CASE WHEN " + expires_at + " <= " + now + " THEN 3"  # NULL, for ever, is not <=
        " WHEN " + run_at + " <= " + now + " THEN 0 ELSE 1 END"
    )  # fmt: skip


def next_of(run_at: LiteralString, expires_at: LiteralString, now: LiteralString) -> LiteralString:
    """Return ``next_at`` for ``phase_of`` the same job."""
    return (
        "CASE WHEN " + expires_at + " <= " + now + " THEN NULL"
        " WHEN " + run_at + " <= " + now + " THEN " + expires_at +
        " ELSE min(" + run_at + ", coalesce(" + expires_at + ", " + run_at + ")) END"
    )  # fmt: skip


def leased(attempts: LiteralString, lease_until: LiteralString) -> LiteralString:
    """Return the assignments of phase and ``next_at`` for a job under a lease."""
    return (
        "phase = CASE WHEN " + attempts + " < max_attempts THEN 1 ELSE 2 END, "
        "next_at = CASE WHEN " + attempts + " < max_attempts THEN " + lease_until + " + 1 END"
    )  # fmt: skip


_UNCLAIMED: Final = "token = NULL, lease_until = NULL, worker_id = NULL"

_VALID: Final = "queue = ?1 AND token IS NOT NULL AND lease_until >= ?2"
"""A valid claim of the queue: the job is processing, and the deadline hasn't passed (J-1)."""

_IDS: Final = "id IN (SELECT value FROM json_each(?1))"

# --- records -----------------------------------------------------------------------------------------------------


def values(columns: LiteralString) -> LiteralString:
    """Return columns as expressions of the same values.

    An expression has no declared type, and so no converter that an application has registered for one (``joined``).
    """
    return "+" + columns.replace(", ", ", +")


_BOTH: Final = values(
    "codec, payload, headers, priority, attempts, max_attempts, created_at, run_at, expires_at, visibility_timeout, "
    "backoff_base, backoff_cap, retention"
)
LIVE_COLUMNS: Final = (
    "+id, +queue, CASE WHEN token IS NULL THEN 'pending' ELSE 'processing' END AS state, " + _BOTH + ", "
    "+worker_id, +lease_until, +token, +last_error, NULL AS died_at, +keep_result"
)  # fmt: skip
DEAD_COLUMNS: Final = (
    "+id, +queue, 'dead' AS state, " + _BOTH + ", "
    "NULL AS worker_id, NULL AS lease_until, NULL AS token, +last_error, +died_at, +keep_result"
)  # fmt: skip

# --- insert (Q-ENQ-1, Q-ENQ-3, O-3) ------------------------------------------------------------------------------

# ?6 is the call's one now. One row per execution: a statement of many rows would save little without a network in
# between, and could not carry blobs as JSON. The twin takes arrays.
INSERT: Final = (
    "INSERT INTO main.alkstore_jobs (queue, priority, run_at, max_attempts, expires_at, created_at, visibility_timeout, "
    "backoff_base, backoff_cap, retention, codec, headers, payload, keep_result, phase, next_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
    + phase_of("?3", "?5", "?6") + ", " + next_of("?3", "?5", "?6") + ")"
)  # fmt: skip

# AUTOINCREMENT counts up by one, and the write lock keeps others out: the ids of a batch end here.
LAST_ID: Final = "SELECT last_insert_rowid()"

# --- claim (Q-CLAIM-2 to Q-CLAIM-6) ------------------------------------------------------------------------------

# Whether there is anything to ripen, to bury, or to set back after a step of the clock: nearly always nothing.
CLAIM_PROBE: Final = (
    "SELECT EXISTS (SELECT 1 FROM main.alkstore_jobs INDEXED BY alkstore_jobs_timer WHERE queue = ?1 AND next_at <= ?2), "
    "EXISTS (SELECT 1 FROM main.alkstore_jobs INDEXED BY alkstore_jobs_last "
    "WHERE queue = ?1 AND phase = 2 AND lease_until < ?2), "
    "EXISTS (SELECT 1 FROM main.alkstore_jobs INDEXED BY alkstore_jobs_expired "
    "WHERE queue = ?1 AND phase = 3 AND expires_at > ?2)"
)

CLAIM_DUE: Final = (
    "SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_timer WHERE queue = ?1 AND next_at <= ?2 "
    "ORDER BY next_at LIMIT ?3"
)

# Whatever is due is expired, or else pending and due, or lapsed; and a lapsed job was due when it was claimed.
# A lapsed claim is due whatever its run_at says, which may lie ahead once a clock was set back.
_DUE_AT: Final = "CASE WHEN lease_until < ?2 THEN ?2 ELSE run_at END"

CLAIM_RIPEN: Final = (
    "UPDATE main.alkstore_jobs SET phase = " + phase_of(_DUE_AT, "expires_at", "?2") + ", "
    "next_at = " + next_of(_DUE_AT, "expires_at", "?2") + " WHERE " + _IDS
)  # fmt: skip

# Set aside as expired by a clock that has stepped back since.
CLAIM_EARLY: Final = (
    "SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_expired WHERE queue = ?1 AND phase = 3 AND expires_at > ?2 "
    "LIMIT ?3"
)

# A lapsed lease may be valid again by such a clock; budget was left with it, or the phase would not have been 3.
CLAIM_UNEXPIRE: Final = (
    "UPDATE main.alkstore_jobs SET "
    "phase = CASE WHEN lease_until >= ?2 THEN 1 ELSE " + phase_of(_DUE_AT, "expires_at", "?2") + " END, "
    "next_at = CASE WHEN lease_until >= ?2 THEN lease_until + 1 ELSE " + next_of(_DUE_AT, "expires_at", "?2") + " END "
    "WHERE " + _IDS
)  # fmt: skip

CLAIM_SPENT: Final = (
    "SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_last WHERE queue = ?1 AND phase = 2 AND lease_until < ?2 "
    "ORDER BY lease_until LIMIT ?3"
)

CLAIM_PICK: Final = (
    "SELECT +id, "
    + _BOTH
    + ", +last_error, +keep_result FROM main.alkstore_jobs INDEXED BY alkstore_jobs_ready WHERE queue = ?1 AND phase = 0 "
    "AND CASE WHEN lease_until IS NULL THEN run_at <= ?2 ELSE lease_until < ?2 END AND (expires_at IS NULL OR expires_at > ?2) "
    "ORDER BY priority DESC, run_at, id LIMIT ?3"
)

# ?2 is the token, ?3 the worker, ?4 now. The twin does pick and take in one statement, for the sake of a round trip.
CLAIM_TAKE: Final = (
    "UPDATE main.alkstore_jobs SET token = ?2, worker_id = ?3, lease_until = ?4 + visibility_timeout, "
    "attempts = attempts + 1, " + leased("attempts + 1", "?4 + visibility_timeout") + " WHERE id = ?1"
)  # fmt: skip

# --- one claim (J, Q-8) ------------------------------------------------------------------------------------------

RECALL: Final = "SELECT " + LIVE_COLUMNS + " FROM main.alkstore_jobs WHERE id = ?2 AND queue = ?1 AND token = ?3"

# Nothing to lock: the transaction that asks has the write lock. The twin locks the row.
HOLD: Final = "SELECT 1 FROM main.alkstore_jobs WHERE id = ?3 AND token = ?4 AND " + _VALID

# A job that keeps its result is refused in CONCLUDE and ACK_ONE: what deletes it has to write the result first.
CONCLUDE: Final = "DELETE FROM main.alkstore_jobs WHERE id = ?2 AND queue = ?1 AND token = ?3 AND keep_result IS NULL"
CONCLUDABLE: Final = "SELECT 1 FROM main.alkstore_jobs WHERE id = ?2 AND queue = ?1 AND token = ?3"

# --- refusals (J-1, Q-2) -----------------------------------------------------------------------------------------

# Which of many references are valid is asked once, and then acted upon by id: nobody writes in between.
JUDGE: Final = (
    "SELECT +id, +token, attempts >= max_attempts, keep_result IS NOT NULL FROM main.alkstore_jobs "
    "WHERE " + _VALID + " AND id IN (SELECT value FROM json_each(?3))"
)  # fmt: skip

ACK_ONE: Final = "DELETE FROM main.alkstore_jobs WHERE id = ?3 AND token = ?4 AND keep_result IS NULL AND " + _VALID
DELETE_LIVE: Final = "DELETE FROM main.alkstore_jobs WHERE " + _IDS

LEASE: Final = "SELECT +lease_until FROM main.alkstore_jobs WHERE id = ?1"

# ?3 is the extension, NULL for the job's own visibility timeout.
EXTEND: Final = (
    "UPDATE main.alkstore_jobs SET lease_until = ?2 + coalesce(?3, visibility_timeout), "
    + leased("attempts", "?2 + coalesce(?3, visibility_timeout)")
    + " WHERE id = ?1 RETURNING +lease_until"
)

# ?3 is the delay, ?4 the error.
RETRY: Final = (
    "UPDATE main.alkstore_jobs SET " + _UNCLAIMED + ", run_at = ?2 + ?3, last_error = coalesce(?4, last_error), "
    "phase = " + phase_of("?2 + ?3", "expires_at", "?2") + ", "
    "next_at = " + next_of("?2 + ?3", "expires_at", "?2") + " WHERE id = ?1"
)  # fmt: skip

# ?3 is the delay, NULL to keep run_at. A kept run_at may lie ahead after a clock was set back: the rule sees to it.
RELEASE: Final = (
    "UPDATE main.alkstore_jobs SET " + _UNCLAIMED + ", run_at = coalesce(?2 + ?3, run_at), attempts = attempts - 1, "
    "phase = " + phase_of("coalesce(?2 + ?3, run_at)", "expires_at", "?2") + ", "
    "next_at = " + next_of("coalesce(?2 + ?3, run_at)", "expires_at", "?2") + " WHERE id = ?1"
)  # fmt: skip

# --- to the dead table and back (J-8, Q-6) -----------------------------------------------------------------------

_KEPT: Final = (
    "id, queue, priority, run_at, attempts, max_attempts, expires_at, created_at, visibility_timeout, backoff_base, "
    "backoff_cap, retention, codec, headers, payload, keep_result"
)

# ?2 is the error, ?3 now. Insert and delete are one transaction, always: no crash leaves a job twice, or not at all.
BURY: Final = (
    "INSERT INTO main.alkstore_dead_jobs (" + _KEPT + ", last_error, died_at, purge_at) "
    "SELECT " + _KEPT + ", ?2, ?3, ?3 + retention FROM main.alkstore_jobs WHERE " + _IDS
)  # fmt: skip
BURY_ONE: Final = (
    "INSERT INTO main.alkstore_dead_jobs (" + _KEPT + ", last_error, died_at, purge_at) "
    "SELECT " + _KEPT + ", ?2, ?3, ?3 + retention FROM main.alkstore_jobs WHERE id = ?1"
)  # fmt: skip
DELETE_ONE: Final = "DELETE FROM main.alkstore_jobs WHERE id = ?1"

REVIVABLE: Final = "SELECT +id FROM main.alkstore_dead_jobs WHERE " + _IDS + " AND queue = ?2 ORDER BY id"
REVIVE: Final = (
    "INSERT INTO main.alkstore_jobs (id, queue, phase, priority, run_at, max_attempts, created_at, visibility_timeout, "
    "backoff_base, backoff_cap, retention, codec, headers, last_error, payload, keep_result) "
    "SELECT id, queue, 0, priority, ?2, max_attempts, created_at, visibility_timeout, "
    "backoff_base, backoff_cap, retention, codec, headers, last_error, payload, keep_result FROM main.alkstore_dead_jobs WHERE "
    + _IDS
)
DELETE_DEAD: Final = "DELETE FROM main.alkstore_dead_jobs WHERE " + _IDS

# --- by id (Q-3, Q-4, Q-6, Q-8) ----------------------------------------------------------------------------------

CANCELLABLE: Final = "SELECT +id FROM main.alkstore_jobs WHERE " + _IDS + " AND queue = ?2 ORDER BY id"

# One statement over both tables: between two, a job could move and be missed.
GET: Final = (
    "SELECT " + LIVE_COLUMNS + " FROM main.alkstore_jobs WHERE id = ?1 AND (?2 IS NULL OR queue = ?2) "
    "UNION ALL "
    "SELECT " + DEAD_COLUMNS + " FROM main.alkstore_dead_jobs WHERE id = ?1 AND (?2 IS NULL OR queue = ?2)"
)  # fmt: skip

LIST_PENDING: Final = (
    "SELECT " + LIVE_COLUMNS + " FROM main.alkstore_jobs WHERE queue = ?1 AND id > ?2 AND token IS NULL "
    "ORDER BY id LIMIT ?3"
)  # fmt: skip
LIST_PROCESSING: Final = (
    "SELECT " + LIVE_COLUMNS + " FROM main.alkstore_jobs WHERE queue = ?1 AND id > ?2 AND token IS NOT NULL "
    "ORDER BY id LIMIT ?3"
)  # fmt: skip
LIST_DEAD: Final = (
    "SELECT " + DEAD_COLUMNS + " FROM main.alkstore_dead_jobs WHERE queue = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
)  # fmt: skip
# Each page by its table's own order, and then merged: a compound can be ordered by what it selects alone.
LIST_ALL: Final = (
    "SELECT * FROM (SELECT " + LIVE_COLUMNS + " FROM main.alkstore_jobs WHERE queue = ?1 AND id > ?2 ORDER BY id LIMIT ?3) "
    "UNION ALL SELECT * FROM "
    "(SELECT " + DEAD_COLUMNS + " FROM main.alkstore_dead_jobs WHERE queue = ?1 AND id > ?2 ORDER BY id LIMIT ?3) "
    "ORDER BY 1 LIMIT ?3"
)  # fmt: skip

# --- counts (Q-6, Q-8) -------------------------------------------------------------------------------------------

# A walk over the live table that reads the front of each row only: the phases could be counted faster, but what is
# ripe and not yet ripened would be counted wrong.
STATS: Final = (
    "SELECT count(*) FILTER (WHERE token IS NULL AND run_at <= ?2), count(*) FILTER (WHERE token IS NULL AND run_at > ?2), "
    "count(*) FILTER (WHERE token IS NOT NULL), "
    "(SELECT count(*) FROM main.alkstore_dead_jobs INDEXED BY alkstore_dead_jobs_queue WHERE queue = ?1), "
    "min(run_at) FILTER (WHERE token IS NULL AND run_at <= ?2) FROM main.alkstore_jobs WHERE queue = ?1"
)

# W-4. The timer's first entry may be a ready job's expiry: too early does no harm.
NEXT_DUE: Final = (
    "SELECT EXISTS (SELECT 1 FROM main.alkstore_jobs INDEXED BY alkstore_jobs_ready WHERE queue = ?1 AND phase = 0 "
    "AND CASE WHEN lease_until IS NULL THEN run_at <= ?2 ELSE lease_until < ?2 END "
    "AND (expires_at IS NULL OR expires_at > ?2)), "
    "(SELECT next_at FROM main.alkstore_jobs INDEXED BY alkstore_jobs_timer "
    "WHERE queue = ?1 AND next_at IS NOT NULL ORDER BY next_at LIMIT 1), "
    "(SELECT lease_until + 1 FROM main.alkstore_jobs INDEXED BY alkstore_jobs_last "
    "WHERE queue = ?1 AND phase = 2 ORDER BY lease_until LIMIT 1)"
)


def _names(table: LiteralString, index: LiteralString, condition: LiteralString) -> LiteralString:
    """Return a walk over an index that starts with the queue, one step per queue rather than per row."""
    hop = "FROM " + table + " INDEXED BY " + index + " WHERE " + condition
    return (
        "SELECT name FROM (WITH RECURSIVE hops (name) AS (SELECT min(queue) " + hop + " UNION ALL "
        "SELECT (SELECT min(queue) " + hop + " AND queue > hops.name) FROM hops WHERE hops.name IS NOT NULL) "
        "SELECT name FROM hops WHERE name IS NOT NULL)"
    )  # fmt: skip


# Every live row is in one of the four partial indexes, whatever its phase. A queue may have nothing but results: a sweep of
# all queues is to find it.
QUEUES: Final = (
    _names("main.alkstore_jobs", "alkstore_jobs_ready", "phase = 0") + " UNION "
    + _names("main.alkstore_jobs", "alkstore_jobs_timer", "next_at IS NOT NULL") + " UNION "
    + _names("main.alkstore_jobs", "alkstore_jobs_last", "phase = 2") + " UNION "
    + _names("main.alkstore_jobs", "alkstore_jobs_expiry", "expires_at IS NOT NULL") + " UNION "
    + _names("main.alkstore_dead_jobs", "alkstore_dead_jobs_queue", "1") + " UNION "
    + _names("main.alkstore_results", "alkstore_results_expiry", "1") + " ORDER BY name"
)  # fmt: skip

# The queues in which ``NEXT_DUE`` can find anything; of each kind so many at most, before they are united.
DUE_QUEUES: Final = (
    "SELECT name FROM (" + _names("alkstore_jobs", "alkstore_jobs_ready", "phase = 0") + " LIMIT ?1) UNION "
    + "SELECT name FROM (" + _names("alkstore_jobs", "alkstore_jobs_timer", "next_at IS NOT NULL") + " LIMIT ?1) UNION "
    + "SELECT name FROM (" + _names("alkstore_jobs", "alkstore_jobs_last", "phase = 2") + " LIMIT ?1)"
)  # fmt: skip

# --- sweep and purge (Q-5, Q-6, Z-8) -----------------------------------------------------------------------------

SWEEP_EXPIRED: Final = (
    "SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_expiry WHERE queue = ?1 AND expires_at <= ?2 "
    "ORDER BY expires_at LIMIT ?3"
)
SWEEP_RETIRED: Final = (
    "SELECT +id FROM main.alkstore_dead_jobs INDEXED BY alkstore_dead_jobs_purge WHERE queue = ?1 AND purge_at <= ?2 "
    "ORDER BY purge_at LIMIT ?3"
)

# Through the partial indexes, so that other queues' rows aren't walked over at each batch. The arms don't overlap.
PURGE_PENDING: Final = (
    "SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_ready WHERE queue = ?1 AND phase = 0 AND token IS NULL "
    "UNION ALL SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_timer "
    "WHERE queue = ?1 AND next_at IS NOT NULL AND phase = 1 AND token IS NULL "
    "UNION ALL SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_expiry "
    "WHERE queue = ?1 AND expires_at IS NOT NULL AND phase = 3 AND token IS NULL LIMIT ?2"
)
PURGE_PROCESSING: Final = (
    "SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_last WHERE queue = ?1 AND phase = 2 "
    "UNION ALL SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_timer "
    "WHERE queue = ?1 AND next_at IS NOT NULL AND phase = 1 AND token IS NOT NULL "
    "UNION ALL SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_expiry "
    "WHERE queue = ?1 AND expires_at IS NOT NULL AND phase = 3 AND token IS NOT NULL "
    "UNION ALL SELECT +id FROM main.alkstore_jobs INDEXED BY alkstore_jobs_ready "
    "WHERE queue = ?1 AND phase = 0 AND token IS NOT NULL LIMIT ?2"
)
PURGE_DEAD: Final = (
    "SELECT +id FROM main.alkstore_dead_jobs INDEXED BY alkstore_dead_jobs_queue WHERE queue = ?1 LIMIT ?2"
)

# --- results (Z-17) ----------------------------------------------------------------------------------------------

# Of one job, before it is deleted in the same transaction; nothing where it keeps none. ?2 is the outcome, ?3 the codec and
# ?4 the result, both NULL for a tombstone, ?5 now. The twin does both in one statement.
KEEP: Final = (
    "INSERT INTO main.alkstore_results (id, queue, outcome, attempts, enqueued_at, finished_at, expires_at, worker_id, codec, "
    "payload) SELECT id, queue, ?2, attempts, created_at, ?5, ?5 + keep_result, worker_id, ?3, ?4 FROM main.alkstore_jobs "
    "WHERE id = ?1 AND keep_result IS NOT NULL"
)

# Of which jobs something is to be kept.
KEEPERS: Final = "SELECT +id FROM main.alkstore_jobs WHERE " + _IDS + " AND keep_result IS NOT NULL ORDER BY id"

# One statement over all three tables: between two, a job could move and be missed. Only results' payloads are read.
RESULT: Final = (
    "SELECT +id, +queue, +outcome, +codec, +payload, +attempts, +finished_at, +expires_at, +worker_id, NULL AS last_error, "
    "NULL AS keep_result FROM main.alkstore_results WHERE id = ?1 AND (?2 IS NULL OR queue = ?2) AND expires_at > ?3 "
    "UNION ALL "
    "SELECT +id, +queue, NULL, NULL, NULL, +attempts, NULL, NULL, +worker_id, NULL, +keep_result "
    "FROM main.alkstore_jobs WHERE id = ?1 AND (?2 IS NULL OR queue = ?2) "
    "UNION ALL "
    "SELECT +id, +queue, 'failed', NULL, NULL, +attempts, +died_at, +purge_at, NULL, +last_error, +keep_result "
    "FROM main.alkstore_dead_jobs WHERE id = ?1 AND (?2 IS NULL OR queue = ?2)"
)

RESULTS_OVER: Final = (
    "SELECT +id FROM main.alkstore_results INDEXED BY alkstore_results_expiry WHERE queue = ?1 AND expires_at <= ?2 "
    "ORDER BY expires_at LIMIT ?3"
)
DELETE_RESULTS: Final = "DELETE FROM main.alkstore_results WHERE " + _IDS

# --- notifications (W-1, Z-15) ----------------------------------------------------------------------------------

NOTIFY: Final = "INSERT INTO main.alkstore_notifications (channel, payload, sent_at) VALUES (?1, ?2, ?3)"
# A few of the oldest at a time, more than are sent.
NOTIFIED_PRUNE: Final = (
    "DELETE FROM main.alkstore_notifications WHERE id IN (SELECT id FROM "
    "(SELECT id, sent_at FROM main.alkstore_notifications ORDER BY id LIMIT 20) WHERE sent_at < ?1)"
)
# The last that was sent, also where it is gone by now, the first that is left, and a page: of one moment, or something
# could be sent or pruned in between.
NOTIFIED: Final = (
    "SELECT e.last, e.first, n.id, n.channel, n.payload FROM (SELECT "
    "coalesce((SELECT seq FROM main.sqlite_sequence WHERE name = 'alkstore_notifications'), 0) AS last, "
    "(SELECT min(id) FROM main.alkstore_notifications) AS first) AS e LEFT JOIN ("
    "SELECT id, channel, payload FROM main.alkstore_notifications "
    "WHERE id > ?1 AND channel IN (SELECT value FROM json_each(?2)) ORDER BY id LIMIT ?3) AS n ON true ORDER BY n.id"
)
# Changes with every commit of another connection.
DATA_VERSION: Final = "PRAGMA data_version"

# --- joined connections (T-3) ------------------------------------------------------------------------------------

# The files of a connection. The SELECT reads the schema, and so begins to read within a transaction that is open: after
# another's commit such a one can write no more. It gives bytes, whatever the connection makes of texts.
FILES: Final = "PRAGMA database_list"
FILES_IN_BYTES: Final = "SELECT seq, CAST(name AS BLOB), CAST(file AS BLOB) FROM pragma_database_list"

# --- schema (S-2, Z-13) ------------------------------------------------------------------------------------------

SCHEMA_PRESENT: Final = (
    "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name = 'alkstore_schema_version'"
)
SCHEMA_CREATE: Final = (
    "CREATE TABLE main.alkstore_schema_version ("
    "only_row INTEGER PRIMARY KEY CHECK (only_row = 1), major INTEGER NOT NULL, minor INTEGER NOT NULL)"
)
SCHEMA_READ: Final = "SELECT major, minor FROM main.alkstore_schema_version"
SCHEMA_WRITE: Final = "INSERT OR REPLACE INTO main.alkstore_schema_version (only_row, major, minor) VALUES (1, ?, ?)"
