"""The queue operations over one connection."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from os import urandom
from struct import unpack
from typing import Any, Final, Protocol, TypeVar, cast

from alkstore.clock import SECOND, Micros, host_now
from alkstore.engine import SweepTexts
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
    Outcome,
    PurgeBatch,
    ReleaseRef,
    ResultRef,
    ResultRow,
    RetryRef,
    State,
    StatsRow,
    SweepBatch,
)
from alkstore_sqlite import sql
from alkstore_sqlite.rows import job_row, result_row

_PROCESSING: Final = State.PROCESSING

NOTIFIED_FOR: Final = 60 * SECOND
"""For how long a notification is kept, at least (Z-15)."""


NUMBERED_BY_NAME: Final = (3, 12) <= sys.version_info < (3, 12, 4)
"""Whether this Python takes ``?1`` for a name, and warns of values that are given in order (CPython issue 117995)."""


class _Ref(Protocol):
    """What every reference has."""

    @property
    def job_id(self) -> int: ...
    @property
    def token(self) -> int | None: ...


R = TypeVar("R", bound=_Ref)


class Units:
    """Each operation once, as statements on one connection: no commit, no retry, the driver's errors bare.

    Whoever calls a unit that writes has the write lock already (``sql.BEGIN``), so that what one statement read is still
    so for the next. For the meaning of each see ``alkstore.engine.Executor``.
    """

    __slots__ = ("__weakref__", "connection", "execute", "executemany")

    def __init__(
        self,
        connection: sqlite3.Connection,
        execute: Callable[..., sqlite3.Cursor] | None = None,
        executemany: Callable[..., sqlite3.Cursor] | None = None,
    ) -> None:
        """Run on the connection, by its own methods unless others are given."""
        execute, executemany = execute or connection.execute, executemany or connection.executemany
        if NUMBERED_BY_NAME:
            execute, executemany = by_name(execute, executemany)
        self.connection: Final = connection
        self.execute: Final = execute
        self.executemany: Final = executemany

    def interrupt(self) -> None:
        """Have the statement that runs on the connection, if any, stop; from another thread."""
        with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed
            self.connection.interrupt()

    def insert(self, queue: str, jobs: Sequence[NewJob], now: Micros | None) -> list[int]:
        """Insert (Q-ENQ-1, Q-ENQ-3)."""
        created_at = host_now() if now is None else now
        if len(jobs) == 1:
            return [cast(int, self.execute(sql.INSERT, _insert_row(queue, jobs[0], created_at)).lastrowid)]
        if not jobs:
            return []
        if isinstance(jobs, Alike):
            *stamps, _, keep_result = _insert_row(queue, jobs.pattern, created_at)
            self.executemany(sql.INSERT, [(*stamps, payload, keep_result) for payload in jobs.payloads])
        else:
            self.executemany(sql.INSERT, (_insert_row(queue, job, created_at) for job in jobs))
        last: int = self.execute(sql.LAST_ID).fetchone()[0]
        return list(range(last - len(jobs) + 1, last + 1))

    def claim(
        self, queue: str, worker_id: str, count: int, exhausted: str, bury: int, ripen: int, now: Micros | None
    ) -> ClaimBatch:
        """Ripen, bury, pick and take (Q-CLAIM-2 to Q-CLAIM-6); see ``sql``."""
        if now is None:
            now = host_now()
        execute = self.execute
        due, spent, early = execute(sql.CLAIM_PROBE, (queue, now)).fetchone()
        if due or early:
            if due:
                execute(sql.CLAIM_RIPEN, (_json(self._ids(sql.CLAIM_DUE, queue, now, ripen)), now))
            if early:
                execute(sql.CLAIM_UNEXPIRE, (_json(self._ids(sql.CLAIM_EARLY, queue, now, ripen)), now))
            # Neither makes work for the other: whatever the probe finds now was left over.
            due, _, early = execute(sql.CLAIM_PROBE, (queue, now)).fetchone()
            if due or early:
                return ClaimBatch([], True)
        if spent:
            self._move(self._ids(sql.CLAIM_SPENT, queue, now, bury), exhausted, now)
        if count == 1:
            picked = execute(sql.CLAIM_PICK, (queue, now, 1)).fetchone()
            if picked is None:
                return ClaimBatch([], False)
            token = int.from_bytes(urandom(8)) >> 1 or 1  # 0 would be none
            execute(sql.CLAIM_TAKE, (picked[0], token, worker_id, now))
            return ClaimBatch([_claimed(queue, worker_id, now, picked, token)], False)
        rows = execute(sql.CLAIM_PICK, (queue, now, count)).fetchall()
        tokens = [bits >> 1 or 1 for bits in unpack(f"={len(rows)}Q", urandom(8 * len(rows)))]
        # By id: rows that were enqueued together lie together.
        taken = sorted(zip([row[0] for row in rows], tokens, repeat(worker_id), repeat(now)))
        self.executemany(sql.CLAIM_TAKE, taken)
        return ClaimBatch(
            [_claimed(queue, worker_id, now, row, token) for row, token in zip(rows, tokens, strict=True)], False
        )

    def recall(self, queue: str, ref: ClaimRef) -> JobRow | None:
        """Read the job of a current claim (Q-8)."""
        if not _fits(ref):
            return None
        row = self.execute(sql.RECALL, (queue, ref.job_id, ref.token)).fetchone()
        return None if row is None else job_row(row)

    def hold(self, queue: str, ref: ClaimRef, now: Micros | None) -> bool:
        """Say whether the claim is valid (J-10)."""
        now = host_now() if now is None else now
        return _fits(ref) and self.execute(sql.HOLD, (queue, now, ref.job_id, ref.token)).fetchone() is not None

    def conclude(self, queue: str, ref: ClaimRef) -> bool:
        """Delete by the token alone (J-10)."""
        return _fits(ref) and self.execute(sql.CONCLUDE, (queue, ref.job_id, ref.token)).rowcount == 1

    def ack(self, queue: str, refs: Sequence[ClaimRef], now: Micros | None) -> list[int]:
        """Delete what is validly claimed (J-2, Q-2)."""
        now = host_now() if now is None else now
        if len(refs) == 1:
            ref = refs[0]
            if ref.token is not None and _fits(ref):
                done = self.execute(sql.ACK_ONE, (queue, now, ref.job_id, ref.token)).rowcount
                return [ref.job_id] if done == 1 else []
        ids = [ref.job_id for ref, _, keeps in self._judge(queue, refs, now) if not keeps]
        if ids:
            self.execute(sql.DELETE_LIVE, (_json(ids),))
        return ids

    def extend(
        self, queue: str, refs: Sequence[ClaimRef], extension: Micros | None, now: Micros | None
    ) -> dict[int, Moved]:
        """Set deadlines (J-3)."""
        now = host_now() if now is None else now
        execute = self.execute
        moved: dict[int, Moved] = {}
        for ref, _, _ in self._judge(queue, refs, now):
            before = execute(sql.LEASE, (ref.job_id,)).fetchone()[0]  # RETURNING knows no values of before
            deadline = execute(sql.EXTEND, (ref.job_id, now, extension)).fetchone()[0]
            moved[ref.job_id] = Moved(deadline, deadline < before)
        return moved

    def retry(self, queue: str, refs: Sequence[RetryRef], exhausted: str, now: Micros | None) -> list[int]:
        """Make pending again, or bury (J-4)."""
        now = host_now() if now is None else now
        done: list[int] = []
        for ref, spent, _ in self._judge(queue, refs, now):
            if spent:
                self._move_one(ref.job_id, exhausted if ref.error is None else ref.error, now)
            else:
                self.execute(sql.RETRY, (ref.job_id, now, ref.delay, ref.error))
            done.append(ref.job_id)
        return done

    def bury(self, queue: str, refs: Sequence[BuryRef], now: Micros | None) -> list[int]:
        """Move to the dead table (J-5)."""
        now = host_now() if now is None else now
        valid = [ref for ref, _, _ in self._judge(queue, refs, now)]
        for ref in valid:
            self._move_one(ref.job_id, ref.error, now)
        return [ref.job_id for ref in valid]

    def release(self, queue: str, refs: Sequence[ReleaseRef], now: Micros | None) -> list[int]:
        """Give back unworked (J-6)."""
        now = host_now() if now is None else now
        valid = [ref for ref, _, _ in self._judge(queue, refs, now)]
        for ref in valid:
            self.execute(sql.RELEASE, (ref.job_id, now, ref.delay))
        return [ref.job_id for ref in valid]

    def cancel(self, queue: str, job_ids: Sequence[int]) -> list[int]:
        """Delete live jobs (Q-3)."""
        return self.cancel_keeping(queue, job_ids, None).done

    def get(self, queue: str | None, job_id: int) -> JobRow | None:
        """Read a job, live or dead (Q-4, Q-8)."""
        if not 0 < job_id <= ID_MAX:
            return None
        row = self.execute(sql.GET, (job_id, queue)).fetchone()
        return None if row is None else job_row(row)

    def list(self, queue: str, state: State | None, after: int, limit: int) -> list[JobRow]:
        """Read a page (Q-6)."""
        if after >= ID_MAX or limit <= 0:
            return []
        statement = sql.LIST_ALL if state is None else _LISTS[state]
        return [job_row(row) for row in self.execute(statement, (queue, max(after, 0), limit))]

    def stats(self, queue: str, now: Micros | None) -> StatsRow:
        """Count (Q-6)."""
        now = host_now() if now is None else now
        ready, scheduled, processing, dead, oldest = self.execute(sql.STATS, (queue, now)).fetchone()
        return StatsRow(ready, scheduled, processing, dead, oldest, now)

    def next_due(self, queue: str, now: Micros | None) -> DueRow:
        """Look for the next time to claim (W-4)."""
        now = host_now() if now is None else now
        ready, *later = self.execute(sql.NEXT_DUE, (queue, now)).fetchone()
        return DueRow(now, now if ready else min((each for each in later if each is not None), default=None))

    def notify(self, channel: str, payload: str) -> None:
        """Write it down for whoever listens, and take away a few that nobody needs any more (W-1, Z-15)."""
        sent_at = host_now()  # whatever the store's clock: listeners wait in real time
        self.execute(sql.NOTIFY, (channel, payload, sent_at))
        self.execute(sql.NOTIFIED_PRUNE, (sent_at - NOTIFIED_FOR,))

    def queues(self) -> list[str]:
        """Name the queues that have rows (Q-8)."""
        return [row[0] for row in self.execute(sql.QUEUES)]

    def sweep(self, queue: str, limit: int, texts: SweepTexts, now: Micros | None) -> SweepBatch:
        """Move what is expired, then what is lapsed and spent; delete the dead past their retention (Q-5)."""
        now = host_now() if now is None else now
        expired = self._ids(sql.SWEEP_EXPIRED, queue, now, limit)
        self._move(expired, texts.expired, now)
        spent = self._ids(sql.CLAIM_SPENT, queue, now, limit - len(expired)) if len(expired) < limit else []
        self._move(spent, texts.exhausted, now)
        retired = self._ids(sql.SWEEP_RETIRED, queue, now, limit)
        if retired:
            self.execute(sql.DELETE_DEAD, (_json(retired),))
        moved = len(expired) + len(spent)
        return SweepBatch(moved, moved >= limit or len(retired) >= limit)

    def revive(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> list[int]:
        """Make dead jobs pending again (Q-6)."""
        now = host_now() if now is None else now
        ids = self._among(sql.REVIVABLE, queue, job_ids)
        if ids:
            self.execute(sql.REVIVE, (_json(ids), now))
            self.execute(sql.DELETE_DEAD, (_json(ids),))
        return ids

    def purge(self, queue: str, state: State, limit: int) -> PurgeBatch:
        """Delete a batch (Q-6)."""
        return self.purge_keeping(queue, state, limit, None)

    # --- results (Z-17) ------------------------------------------------------------------------------------------

    def ack_keeping(self, queue: str, refs: Sequence[ResultRef], codec: str, now: Micros | None) -> KeptBatch:
        """Keep what is to be kept, and delete (J-2, Q-2)."""
        now = host_now() if now is None else now
        valid = self._judge(queue, refs, now)
        for ref, _, keeps in valid:
            if keeps:
                self.execute(sql.KEEP, (ref.job_id, Outcome.SUCCEEDED.value, codec, ref.payload, now))
        ids = [ref.job_id for ref, _, _ in valid]
        if ids:
            self.execute(sql.DELETE_LIVE, (_json(ids),))
        return KeptBatch(ids, [ref.job_id for ref, _, keeps in valid if keeps])

    def conclude_keeping(self, queue: str, ref: ResultRef, codec: str, now: Micros | None) -> KeptBatch:
        """Keep the result if it is to be kept, and delete by the token alone (J-10)."""
        now = host_now() if now is None else now
        if not _fits(ref) or self.execute(sql.CONCLUDABLE, (queue, ref.job_id, ref.token)).fetchone() is None:
            return KeptBatch([], [])
        kept = self.execute(sql.KEEP, (ref.job_id, Outcome.SUCCEEDED.value, codec, ref.payload, now)).rowcount == 1
        self.execute(sql.DELETE_ONE, (ref.job_id,))
        return KeptBatch([ref.job_id], [ref.job_id] if kept else [])

    def cancel_keeping(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> KeptBatch:
        """Delete live jobs, and leave their tombstones (Q-3)."""
        ids = self._among(sql.CANCELLABLE, queue, job_ids)
        return KeptBatch(ids, self._delete_live(ids, now))

    def purge_keeping(self, queue: str, state: State, limit: int, now: Micros | None) -> PurgeBatch:
        """Delete a batch, and leave the tombstones of what was alive (Q-6)."""
        pick, dead = _PURGES[state]
        ids = [row[0] for row in self.execute(pick, (queue, limit))]
        if dead and ids:
            self.execute(sql.DELETE_DEAD, (_json(ids),))
        elif ids:
            self._delete_live(ids, now)
        return PurgeBatch(len(ids), len(ids) >= limit)

    def result(self, queue: str | None, job_id: int, now: Micros | None) -> ResultRow | None:
        """Read what a job has come to."""
        if not 0 < job_id <= ID_MAX:
            return None
        row = self.execute(sql.RESULT, (job_id, queue, host_now() if now is None else now)).fetchone()
        return None if row is None else result_row(row)

    def prune_results(self, queue: str, limit: int, now: Micros | None) -> int:
        """Delete results past their time."""
        ids = self._ids(sql.RESULTS_OVER, queue, host_now() if now is None else now, limit)
        if ids:
            self.execute(sql.DELETE_RESULTS, (_json(ids),))
        return len(ids)

    def _delete_live(self, ids: list[int], now: Micros | None) -> list[int]:
        """Delete jobs that aren't done, and return those that left a tombstone."""
        if not ids:
            return []
        given, now = _json(ids), host_now() if now is None else now
        kept = [row[0] for row in self.execute(sql.KEEPERS, (given,)).fetchall()]
        for job_id in kept:
            self.execute(sql.KEEP, (job_id, Outcome.CANCELLED.value, None, None, now))
        self.execute(sql.DELETE_LIVE, (given,))
        return kept

    def _ids(self, statement: str, queue: str, now: Micros, limit: int) -> list[int]:
        return [row[0] for row in self.execute(statement, (queue, now, limit))]

    def _among(self, statement: str, queue: str, job_ids: Sequence[int]) -> list[int]:
        possible = [job_id for job_id in job_ids if 0 < job_id <= ID_MAX]
        return [row[0] for row in self.execute(statement, (_json(possible), queue))] if possible else []

    def _judge(self, queue: str, refs: Sequence[R], now: Micros) -> list[tuple[R, bool, bool]]:
        """Return the references whose claim is valid, each job once, in id order.

        And of each whether its budget is spent, and whether it keeps its result.
        """
        ids = [ref.job_id for ref in refs if _fits(ref)]
        found: dict[int, tuple[int, int, int]] = {}
        if ids:
            for job_id, token, spent, keeps in self.execute(sql.JUDGE, (queue, now, _json(ids))):
                found[job_id] = (token, spent, keeps)
        valid: dict[int, tuple[R, bool, bool]] = {}
        for ref in refs:
            token, spent, keeps = found.get(ref.job_id, (0, 0, 0))
            if token > 0 and (ref.token is None or ref.token == token):
                valid.setdefault(ref.job_id, (ref, bool(spent), bool(keeps)))
        return [valid[job_id] for job_id in sorted(valid)]

    def _move(self, ids: list[int], error: str, now: Micros) -> None:
        if ids:
            given = _json(ids)
            self.execute(sql.BURY, (given, error, now))
            self.execute(sql.DELETE_LIVE, (given,))

    def _move_one(self, job_id: int, error: str, now: Micros) -> None:
        self.execute(sql.BURY_ONE, (job_id, error, now))
        self.execute(sql.DELETE_ONE, (job_id,))


def by_name(
    execute: Callable[..., sqlite3.Cursor], executemany: Callable[..., sqlite3.Cursor]
) -> tuple[Callable[..., sqlite3.Cursor], Callable[..., sqlite3.Cursor]]:
    """Return the two with the values under the names that the driver sees in ``?1``, ``?2``: "1", "2".

    Not done where it isn't needed: it costs an insert about a microsecond.
    """

    def named(values: Iterable[object]) -> dict[str, object]:
        return {str(number): value for number, value in enumerate(values, 1)}

    def execute_named(statement: str, values: Iterable[object] = ()) -> sqlite3.Cursor:
        return execute(statement, named(values))

    def executemany_named(statement: str, rows: Iterable[Iterable[object]]) -> sqlite3.Cursor:
        return executemany(statement, map(named, rows))

    return execute_named, executemany_named


_LISTS: Final = {
    State.PENDING: sql.LIST_PENDING,
    State.PROCESSING: sql.LIST_PROCESSING,
    State.DEAD: sql.LIST_DEAD,
}
_PURGES: Final = {
    State.PENDING: (sql.PURGE_PENDING, False),
    State.PROCESSING: (sql.PURGE_PROCESSING, False),
    State.DEAD: (sql.PURGE_DEAD, True),
}


def _json(ids: list[int]) -> str:
    return str(ids)  # a list of ints is its own JSON


def _fits(ref: _Ref) -> bool:
    """Say whether the reference can exist: ids and tokens start at 1, and the driver refuses what 64 bits can't hold."""
    token = ref.token
    return 0 < ref.job_id <= ID_MAX and (token is None or 0 < token <= ID_MAX)


def _insert_row(queue: str, job: NewJob, now: Micros) -> tuple[object, ...]:
    (
        codec,
        payload,
        headers,
        priority,
        max_attempts,
        visibility_timeout,
        base,
        cap,
        retention,
        run_at,
        is_offset,
        expires_in,
        keep_result,
    ) = job
    return (
        queue,
        priority,
        now + run_at if is_offset else run_at,
        max_attempts,
        None if expires_in is None else now + expires_in,
        now,
        visibility_timeout,
        base,
        cap,
        retention,
        codec,
        headers,
        payload,
        keep_result,
    )


def _claimed(queue: str, worker_id: str, now: Micros, row: tuple[Any, ...], token: int) -> JobRow:
    """Return the record of a picked row as ``sql.CLAIM_TAKE`` leaves it."""
    (
        job_id,
        codec,
        payload,
        headers,
        priority,
        attempts,
        max_attempts,
        created_at,
        run_at,
        expires_at,
        visibility_timeout,
        base,
        cap,
        retention,
        last_error,
        keep_result,
    ) = row
    return JobRow(
        job_id,
        queue,
        _PROCESSING,
        codec,
        payload,
        headers,
        priority,
        attempts + 1,
        max_attempts,
        created_at,
        run_at,
        expires_at,
        visibility_timeout,
        base,
        cap,
        retention,
        worker_id,
        now + visibility_timeout,
        token,
        last_error,
        None,
        keep_result,
    )
