"""The face of an executor, which auto-commit and transactions share: each operation reads, or it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from alkstore.clock import Micros, host_now
from alkstore.engine import SweepTexts
from alkstore.records import (
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
from alkstore_sqlite.executor import Units

P = ParamSpec("P")
T = TypeVar("T")


class Operations:
    """The face of ``alkstore.engine.Executor`` and ``Results``: each method says whether it reads or writes; a subclass runs it."""

    __slots__ = ()

    def read(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit that only reads."""
        raise NotImplementedError

    def write(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit that writes."""
        raise NotImplementedError

    def now(self) -> Micros:
        """Return the host's clock: SQLite has none of its own."""
        return host_now()

    def insert(self, queue: str, jobs: Sequence[NewJob], now: Micros | None) -> list[int]:
        """Insert (Q-ENQ-1, Q-ENQ-3)."""
        return self.write(Units.insert, queue, jobs, now)

    def claim(
        self, queue: str, worker_id: str, count: int, exhausted: str, bury: int, ripen: int, now: Micros | None
    ) -> ClaimBatch:
        """Claim (Q-CLAIM)."""
        return self.write(Units.claim, queue, worker_id, count, exhausted, bury, ripen, now)

    def recall(self, queue: str, ref: ClaimRef) -> JobRow | None:
        """Read the job of a current claim (Q-8)."""
        return self.read(Units.recall, queue, ref)

    def hold(self, queue: str, ref: ClaimRef, now: Micros | None) -> bool:
        """Say whether the claim is valid (J-10)."""
        return self.write(Units.hold, queue, ref, now)

    def conclude(self, queue: str, ref: ClaimRef) -> bool:
        """Delete by the token alone (J-10)."""
        return self.write(Units.conclude, queue, ref)

    def ack(self, queue: str, refs: Sequence[ClaimRef], now: Micros | None) -> list[int]:
        """Delete what is validly claimed (J-2, Q-2)."""
        return self.write(Units.ack, queue, refs, now)

    def extend(
        self, queue: str, refs: Sequence[ClaimRef], extension: Micros | None, now: Micros | None
    ) -> dict[int, Moved]:
        """Set deadlines (J-3)."""
        return self.write(Units.extend, queue, refs, extension, now)

    def retry(self, queue: str, refs: Sequence[RetryRef], exhausted: str, now: Micros | None) -> list[int]:
        """Make pending again, or bury (J-4)."""
        return self.write(Units.retry, queue, refs, exhausted, now)

    def bury(self, queue: str, refs: Sequence[BuryRef], now: Micros | None) -> list[int]:
        """Move to the dead table (J-5)."""
        return self.write(Units.bury, queue, refs, now)

    def release(self, queue: str, refs: Sequence[ReleaseRef], now: Micros | None) -> list[int]:
        """Give back unworked (J-6)."""
        return self.write(Units.release, queue, refs, now)

    def cancel(self, queue: str, job_ids: Sequence[int]) -> list[int]:
        """Delete live jobs (Q-3)."""
        return self.write(Units.cancel, queue, job_ids)

    def get(self, queue: str | None, job_id: int) -> JobRow | None:
        """Read a job, live or dead (Q-4, Q-8)."""
        return self.read(Units.get, queue, job_id)

    def list(self, queue: str, state: State | None, after: int, limit: int) -> list[JobRow]:
        """Read a page (Q-6)."""
        return self.read(Units.list, queue, state, after, limit)

    def stats(self, queue: str, now: Micros | None) -> StatsRow:
        """Count (Q-6)."""
        return self.read(Units.stats, queue, now)

    def next_due(self, queue: str, now: Micros | None) -> DueRow:
        """Look for the next time to claim (W-4)."""
        return self.read(Units.next_due, queue, now)

    def notify(self, channel: str, payload: str) -> None:
        """Send at the commit (W-1)."""
        self.write(Units.notify, channel, payload)

    def queues(self) -> list[str]:
        """Name the queues that have rows (Q-8)."""
        return self.read(Units.queues)

    def sweep(self, queue: str, limit: int, texts: SweepTexts, now: Micros | None) -> SweepBatch:
        """Sweep a batch (Q-5)."""
        return self.write(Units.sweep, queue, limit, texts, now)

    def revive(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> list[int]:
        """Make dead jobs pending again (Q-6)."""
        return self.write(Units.revive, queue, job_ids, now)

    def purge(self, queue: str, state: State, limit: int) -> PurgeBatch:
        """Delete a batch (Q-6)."""
        return self.write(Units.purge, queue, state, limit)

    def ack_keeping(self, queue: str, refs: Sequence[ResultRef], codec: str, now: Micros | None) -> KeptBatch:
        """Keep what is to be kept, and delete (J-2, Z-17)."""
        return self.write(Units.ack_keeping, queue, refs, codec, now)

    def conclude_keeping(self, queue: str, ref: ResultRef, codec: str, now: Micros | None) -> KeptBatch:
        """Keep the result if it is to be kept, and delete by the token alone (J-10, Z-17)."""
        return self.write(Units.conclude_keeping, queue, ref, codec, now)

    def cancel_keeping(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> KeptBatch:
        """Delete live jobs, and leave their tombstones (Q-3, Z-17)."""
        return self.write(Units.cancel_keeping, queue, job_ids, now)

    def purge_keeping(self, queue: str, state: State, limit: int, now: Micros | None) -> PurgeBatch:
        """Delete a batch, and leave the tombstones of what was alive (Q-6, Z-17)."""
        return self.write(Units.purge_keeping, queue, state, limit, now)

    def result(self, queue: str | None, job_id: int, now: Micros | None) -> ResultRow | None:
        """Read what a job has come to (Z-17)."""
        return self.read(Units.result, queue, job_id, now)

    def prune_results(self, queue: str, limit: int, now: Micros | None) -> int:
        """Delete results past their time (Z-17)."""
        return self.write(Units.prune_results, queue, limit, now)
