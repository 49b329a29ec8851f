"""The queue operations: which statement each is, and what goes in and comes out.

How the statements run is the runner's part (``runner.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import LiteralString, TypeAlias

from psycopg.types.numeric import Int8

from alkstore.clock import Micros
from alkstore.engine import Executor, Results, SweepTexts
from alkstore.limits import ID_MAX
from alkstore.records import (
    Alike,
    BuryRef,
    ClaimBatch,
    ClaimRef,
    DueRow,
    JobRow,
    KeptBatch,
    Moved,
    NewJob,
    PurgeBatch,
    ReleaseRef,
    ResultRef,
    ResultRow,
    RetryRef,
    State,
    StatsRow,
    SweepBatch,
)
from alkstore_postgres import sql
from alkstore_postgres.channels import Channels
from alkstore_postgres.rows import job_row, result_row
from alkstore_postgres.runner import Rows, Runner

Ref: TypeAlias = ClaimRef | ResultRef | RetryRef | BuryRef | ReleaseRef


class PostgresExecutor(Executor, Results):
    """The operations (see ``alkstore.engine.Executor`` and ``Results``), each on a runner."""

    def __init__(self, runner: Runner, channels: Channels) -> None:
        self._runner = runner
        self._channels = channels

    def now(self) -> Micros:
        """Read the database's clock."""
        return self._runner.read(sql.NOW, {"now": None})[0][0]

    def insert(self, queue: str, jobs: Sequence[NewJob], now: Micros | None) -> list[int]:
        """Insert, in one statement (Q-ENQ-1, Q-ENQ-3)."""
        if not jobs:
            return []
        first = jobs[0]
        common: dict[str, object] = {"queue": queue, "now": _int8(now)}
        if len(jobs) == 1:
            return _ids(self._runner.write(sql.INSERT_ONE, _alike(first) | common | {"payload": first.payload}))
        if isinstance(jobs, Alike):
            found = self._runner.write(sql.INSERT, _alike(first) | common | {"payloads": jobs.payloads})
        else:
            payloads = [job.payload for job in jobs]
            found = self._runner.write(sql.INSERT_MIXED, _mixed(jobs) | common | {"payloads": payloads})
        # Ids are drawn in the order of the jobs; the order in which RETURNING gives them is nobody's promise.
        return sorted(_ids(found))

    def claim(
        self, queue: str, worker_id: str, count: int, exhausted: str, bury: int, ripen: int, now: Micros | None
    ) -> ClaimBatch:
        """Claim; first ripen and bury where the statement finds that something must be (Q-CLAIM-2 to Q-CLAIM-6)."""
        parameters: dict[str, object] = {
            "queue": queue, "worker_id": worker_id, "count": Int8(count), "now": _int8(now),
        }  # fmt: skip
        answer = self._runner.write(sql.CLAIM, parameters)
        _, due, lapsed = answer[0][:3]
        if not due and not lapsed:
            return ClaimBatch(_claimed(answer), False)

        bounded = self._runner.bounded

        def ready(run: Runner) -> tuple[Micros, bool]:
            """Ripen and set back as much as one unit may; return the now of it, and whether more may be left."""
            at, ripened = run.write(sql.RIPEN, {"queue": queue, "limit": Int8(ripen), "now": _int8(now)})[0]
            if ripened >= ripen:
                return at, True
            return at, run.write(sql.UNEXPIRE, {"queue": queue, "limit": Int8(ripen), "now": Int8(at)})[0][1] >= ripen

        def ready_alone(run: Runner) -> tuple[Micros, bool]:
            # Others may take their time with it: the now is read after that, or the new leases would be too short.
            run.write(sql.LOCK_RIPENING, {"queue": queue})
            return ready(run)

        def work(run: Runner) -> ClaimBatch:
            # One now for all of the unit, so that what ripens and what is picked are judged alike; and read within it, as
            # a connection may have been waited for.
            at: Micros
            if due:
                at, more = (ready_alone if bounded else ready)(run)
                if more:
                    return ClaimBatch([], True)
            else:
                at = run.read(sql.NOW, {"now": _int8(now)})[0][0]
            if lapsed and bury > 0:
                run.write(
                    sql.BURY_LAPSED, {"queue": queue, "limit": Int8(bury), "now": Int8(at), "exhausted": exhausted}
                )
            # Not looked for again: one claim buries `bury` jobs at most, and leaves the rest to the next one.
            found = run.write(sql.CLAIM_RIPENED, {**parameters, "now": Int8(at)})
            # Where somebody else's lock was released meanwhile on a row that is due as well, nothing was picked: what
            # was done is kept, and the next unit sees to that row.
            return ClaimBatch(_claimed(found), found[0][1])

        # Within a transaction that stays open, what others could be handed out must not stay locked: it is readied aside
        # first. What is left are rows of the transaction's own, or all of them where no connection was free.
        while due and self._runner.aside(lambda run: ready_alone(run)[1]):
            pass
        return self._runner.unit(work)

    def recall(self, queue: str, ref: ClaimRef) -> JobRow | None:
        """Read the job of a current claim (Q-8)."""
        found = self._runner.read(sql.RECALL, _ref(queue, ref, None)) if _fits(ref) else []
        return job_row(found[0]) if found else None

    def hold(self, queue: str, ref: ClaimRef, now: Micros | None) -> bool:
        """Lock the row of a valid claim (J-10)."""
        return _fits(ref) and bool(self._runner.write(sql.HOLD, _ref(queue, ref, now)))

    def conclude(self, queue: str, ref: ClaimRef) -> bool:
        """Delete by the token alone (J-10)."""
        return _fits(ref) and bool(self._runner.write(sql.CONCLUDE, _ref(queue, ref, None)))

    def ack(self, queue: str, refs: Sequence[ClaimRef], now: Micros | None) -> list[int]:
        """Delete what is validly claimed (J-2, Q-2)."""
        fitting = [ref for ref in refs if _fits(ref)]
        if len(fitting) == 1:
            return _ids(self._runner.write(sql.ACK_ONE, _ref(queue, fitting[0], now)))
        return _ids(self._runner.write(sql.ACK, _refs(queue, fitting, now))) if fitting else []

    def extend(
        self, queue: str, refs: Sequence[ClaimRef], extension: Micros | None, now: Micros | None
    ) -> dict[int, Moved]:
        """Set deadlines (J-3)."""
        fitting = [ref for ref in refs if _fits(ref)]
        longer: dict[str, object] = {"extension": _int8(extension)}
        if not fitting:
            return {}
        if len(fitting) == 1:
            moved = self._runner.write(sql.EXTEND_ONE, _ref(queue, fitting[0], now) | longer)
        else:
            moved = self._runner.write(sql.EXTEND, _refs(queue, fitting, now) | longer)
        return {row[0]: Moved(*row[1:]) for row in moved}

    def retry(self, queue: str, refs: Sequence[RetryRef], exhausted: str, now: Micros | None) -> list[int]:
        """Make pending again, or bury (J-4)."""
        fitting = [ref for ref in refs if _fits(ref)]
        more: dict[str, object] = {
            "delays": _array(ref.delay for ref in fitting),
            "errors": [ref.error for ref in fitting],
            "exhausted": exhausted,
        }
        return _ids(self._runner.write(sql.RETRY, _refs(queue, fitting, now) | more)) if fitting else []

    def bury(self, queue: str, refs: Sequence[BuryRef], now: Micros | None) -> list[int]:
        """Move to the dead table (J-5)."""
        fitting = [ref for ref in refs if _fits(ref)]
        more: dict[str, object] = {"errors": [ref.error for ref in fitting]}
        return _ids(self._runner.write(sql.BURY, _refs(queue, fitting, now) | more)) if fitting else []

    def release(self, queue: str, refs: Sequence[ReleaseRef], now: Micros | None) -> list[int]:
        """Give back unworked (J-6)."""
        fitting = [ref for ref in refs if _fits(ref)]
        more: dict[str, object] = {"delays": _array(ref.delay for ref in fitting)}
        return _ids(self._runner.write(sql.RELEASE, _refs(queue, fitting, now) | more)) if fitting else []

    def cancel(self, queue: str, job_ids: Sequence[int]) -> list[int]:
        """Delete live jobs (Q-3)."""
        return self.cancel_keeping(queue, job_ids, None).done

    def get(self, queue: str | None, job_id: int) -> JobRow | None:
        """Read a job, live or dead (Q-4, Q-8)."""
        if not 0 < job_id <= ID_MAX:
            return None
        found = self._runner.read(sql.GET, {"id": Int8(job_id), "queue": queue})
        return job_row(found[0]) if found else None

    def list(self, queue: str, state: State | None, after: int, limit: int) -> list[JobRow]:
        """Read a page (Q-6)."""
        if after >= ID_MAX or limit <= 0:
            return []
        parameters: dict[str, object] = {
            "queue": queue,
            "after": Int8(max(after, 0)),
            "limit": Int8(limit),
            "held": state is State.PROCESSING,
        }
        statement = sql.LIST_ALL if state is None else sql.LIST_DEAD if state is State.DEAD else sql.LIST_LIVE
        return [job_row(row) for row in self._runner.read(statement, parameters)]

    def stats(self, queue: str, now: Micros | None) -> StatsRow:
        """Count (Q-6)."""
        return StatsRow(*self._runner.read(sql.STATS, {"queue": queue, "now": _int8(now)})[0])

    def next_due(self, queue: str, now: Micros | None) -> DueRow:
        """Look for the next time to claim (W-4)."""
        return DueRow(*self._runner.read(sql.NEXT_DUE, {"queue": queue, "now": _int8(now)})[0])

    def notify(self, channel: str, payload: str) -> None:
        """Send at the commit (W-1)."""
        names = self._channels
        self._runner.write(sql.NOTIFY, {"channel": names.of(channel), "payload": names.unique(payload)})

    def queues(self) -> list[str]:
        """Name the queues that have rows (Q-8)."""
        return [row[0] for row in self._runner.read(sql.QUEUES, {})]

    def sweep(self, queue: str, limit: int, texts: SweepTexts, now: Micros | None) -> SweepBatch:
        """Move what is expired, or lapsed and spent; delete the dead past their retention (Q-5)."""
        parameters: dict[str, object] = {
            "queue": queue,
            "limit": Int8(limit),
            "expired": texts.expired,
            "exhausted": texts.exhausted,
        }

        def work(run: Runner) -> SweepBatch:
            at, moved = run.write(sql.SWEEP, {**parameters, "now": _int8(now)})[0]
            forgotten = len(run.write(sql.FORGET, {**parameters, "now": Int8(at)}))
            return SweepBatch(moved, moved >= limit or forgotten >= limit)

        return self._runner.unit(work)

    def revive(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> list[int]:
        """Make dead jobs pending again (Q-6)."""
        return _ids(self._of_ids(sql.REVIVE, queue, job_ids, now))

    def purge(self, queue: str, state: State, limit: int) -> PurgeBatch:
        """Delete a batch (Q-6)."""
        return self.purge_keeping(queue, state, limit, None)

    # --- results (Z-17) ------------------------------------------------------------------------------------------

    def ack_keeping(self, queue: str, refs: Sequence[ResultRef], codec: str, now: Micros | None) -> KeptBatch:
        """Delete what is validly claimed, and keep what is to be kept, in one statement (J-2, Q-2)."""
        fitting = [ref for ref in refs if _fits(ref)]
        if not fitting:
            return KeptBatch([], [])
        more: dict[str, object] = {"payloads": [ref.payload for ref in fitting], "codec": codec}
        return _kept(self._runner.write(sql.ACK_KEEPING, _refs(queue, fitting, now) | more))

    def conclude_keeping(self, queue: str, ref: ResultRef, codec: str, now: Micros | None) -> KeptBatch:
        """Delete by the token alone, and keep the result if it is to be kept, in one statement (J-10)."""
        if not _fits(ref):
            return KeptBatch([], [])
        more: dict[str, object] = {"payload": ref.payload, "codec": codec}
        return _kept(self._runner.write(sql.CONCLUDE_KEEPING, _ref(queue, ref, now) | more))

    def cancel_keeping(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> KeptBatch:
        """Delete live jobs, and leave their tombstones (Q-3)."""
        return _kept(self._of_ids(sql.CANCEL, queue, job_ids, now))

    def purge_keeping(self, queue: str, state: State, limit: int, now: Micros | None) -> PurgeBatch:
        """Delete a batch, and leave the tombstones of what was alive (Q-6)."""
        parameters: dict[str, object] = {"queue": queue, "limit": Int8(limit), "held": state is State.PROCESSING}
        statement = sql.PURGE_DEAD if state is State.DEAD else sql.PURGE_LIVE
        found, deleted = self._runner.write(statement, parameters | {"now": _int8(now)})[0]
        return PurgeBatch(deleted, found >= limit)

    def result(self, queue: str | None, job_id: int, now: Micros | None) -> ResultRow | None:
        """Read what a job has come to."""
        if not 0 < job_id <= ID_MAX:
            return None
        found = self._runner.read(sql.RESULT, {"id": Int8(job_id), "queue": queue, "now": _int8(now)})
        return result_row(found[0]) if found else None

    def prune_results(self, queue: str, limit: int, now: Micros | None) -> int:
        """Delete results past their time."""
        parameters: dict[str, object] = {"queue": queue, "limit": Int8(limit), "now": _int8(now)}
        return len(self._runner.write(sql.PRUNE_RESULTS, parameters))

    def _of_ids(self, statement: LiteralString, queue: str, job_ids: Sequence[int], now: Micros | None) -> Rows:
        possible = [job_id for job_id in job_ids if 0 < job_id <= ID_MAX]
        if not possible:
            return []
        return self._runner.write(statement, {"queue": queue, "ids": _array(possible), "now": _int8(now)})


# --- parameters --------------------------------------------------------------------------------------------------
# Integers go as int8, always: the driver would pick the type by the value, and a statement is prepared anew for each
# combination of types. Arrays of them go as text, which is quick to make. What an id or token can't be is found here: it
# isn't there, and the server would refuse the number.


def _int8(value: int | None) -> Int8 | None:
    return None if value is None else Int8(value)


def _array(values: Iterable[int | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _booleans(values: Iterable[bool]) -> str:
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


def _fits(ref: Ref) -> bool:
    return 0 < ref.job_id <= ID_MAX and (ref.token is None or 0 < ref.token <= ID_MAX)


def _ref(queue: str, ref: Ref, now: Micros | None) -> dict[str, object]:
    return {"queue": queue, "id": Int8(ref.job_id), "token": _int8(ref.token), "now": _int8(now)}


def _refs(queue: str, refs: Sequence[Ref], now: Micros | None) -> dict[str, object]:
    return {
        "queue": queue,
        "ids": _array(ref.job_id for ref in refs),
        "tokens": _array(ref.token for ref in refs),
        "now": _int8(now),
    }


def _alike(job: NewJob) -> dict[str, object]:
    """Return the stamps that all the jobs share."""
    return {
        "codec": job.codec,
        "headers": job.headers,
        "priority": Int8(job.priority),
        "max_attempts": Int8(job.max_attempts),
        "visibility_timeout": Int8(job.visibility_timeout),
        "backoff_base": Int8(job.backoff_base),
        "backoff_cap": Int8(job.backoff_cap),
        "retention": _int8(job.retention),
        "run_at": Int8(job.run_at),
        "run_at_is_offset": job.run_at_is_offset,
        "expires_in": _int8(job.expires_in),
        "keep_result": _int8(job.keep_result),
    }


def _mixed(jobs: Sequence[NewJob]) -> dict[str, object]:
    """Return each job's own stamps, as columns."""
    return {
        "codecs": [job.codec for job in jobs],
        "headers": [job.headers for job in jobs],
        "priorities": _array(job.priority for job in jobs),
        "max_attempts": _array(job.max_attempts for job in jobs),
        "visibility_timeouts": _array(job.visibility_timeout for job in jobs),
        "backoff_bases": _array(job.backoff_base for job in jobs),
        "backoff_caps": _array(job.backoff_cap for job in jobs),
        "retentions": _array(job.retention for job in jobs),
        "run_ats": _array(job.run_at for job in jobs),
        "offsets": _booleans(job.run_at_is_offset for job in jobs),
        "expires_in": _array(job.expires_in for job in jobs),
        "keep_results": _array(job.keep_result for job in jobs),
    }


# --- answers -----------------------------------------------------------------------------------------------------


def _ids(found: Rows) -> list[int]:
    return [row[0] for row in found]


def _kept(found: Rows) -> KeptBatch:
    return KeptBatch([row[0] for row in found], [row[0] for row in found if row[1]])


def _claimed(answer: Rows) -> list[JobRow]:
    """Return the claimed jobs; each row begins with the statement's three findings, and the only one may have no job."""
    return [job_row(row[3:]) for row in answer if row[3] is not None]
