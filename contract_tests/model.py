"""What a store is, in plain Python: the contract as a dictionary of jobs.

Nothing here is shared with the product, and nothing is imported from it: a mistake made twice in the same helper would
agree with itself. Read it as the specification of the queue clauses. It has no I/O, no threads and no clock: the caller
says what time it is, as a whole number of microseconds since 1970, and durations are whole microseconds too.

A store is a dictionary of frozen jobs. Every operation replaces jobs or takes them out, so that a copy of the dictionary
is a savepoint, and putting it back is a rollback.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

SECOND: Final = 1_000_000
"""Microseconds in a second: the unit of the retry curve is the second."""

EXPIRED: Final = "expired"
EXHAUSTED: Final = "max attempts exceeded"
FAILED: Final = "failed"
"""The reasons that the store writes by itself (Q-5, Q-CLAIM-6, J-4, J-5)."""

BURIED_PER_CLAIM: Final = 1_000
"""A claim moves at most so many exhausted jobs to the dead (Q-CLAIM-6)."""


class Fate(Enum):
    """The one place where a job is, at any moment (Q-7)."""

    PENDING = "pending"
    PROCESSING = "processing"
    DEAD = "dead"
    ACKED = "acked"
    CANCELLED = "cancelled"
    PURGED = "purged"
    PAST_RETENTION = "past its retention"


@dataclass(frozen=True)
class ModelClaim:
    """Names one claim of one job; no other claim, earlier or later, has the same number (J-1, Q-CLAIM-5)."""

    job: int
    number: int


@dataclass(frozen=True)
class ModelJob:
    """A job that has a row: pending, processing or dead."""

    id: int
    queue: str
    payload: object
    priority: int
    max_attempts: int
    visibility_timeout: int
    backoff_base: int
    backoff_cap: int
    retention: int | None
    created_at: int
    run_at: int
    expires_at: int | None
    attempts: int = 0
    claim: ModelClaim | None = None
    worker: str | None = None
    deadline: int | None = None
    last_error: str | None = None
    died_at: int | None = None

    @property
    def fate(self) -> Fate:
        """Dead once it has died; processing while it has a claim, lapsed or not; else pending."""
        if self.died_at is not None:
            return Fate.DEAD
        return Fate.PENDING if self.claim is None else Fate.PROCESSING

    def due(self, now: int) -> bool:
        """Due when ``run_at <= now`` (Q-CLAIM-4)."""
        return self.run_at <= now

    def expired(self, now: int) -> bool:
        """Expired when ``expires_at <= now`` (Q-CLAIM-4)."""
        return self.expires_at is not None and self.expires_at <= now

    def lapsed(self, now: int) -> bool:
        """A claim is valid while ``now <= deadline``, and lapsed from the next microsecond on (Q-CLAIM-4)."""
        return self.deadline is not None and self.deadline < now

    @property
    def spent(self) -> bool:
        """Whether the budget of attempts is used up."""
        return self.attempts >= self.max_attempts

    def claimable(self, now: int) -> bool:
        """Pending and due, or lapsed with budget left; never past its expiry (Q-CLAIM-4)."""
        if self.expired(now):
            return False
        if self.fate is Fate.PENDING:
            return self.due(now)
        return self.fate is Fate.PROCESSING and self.lapsed(now) and not self.spent


@dataclass(frozen=True)
class ModelStats:
    """What ``stats()`` says, the age in microseconds."""

    ready: int
    scheduled: int
    processing: int
    dead: int
    oldest_ready_age: int | None


@dataclass(frozen=True)
class Savepoint:
    """The store as it was; see ``ModelStore.savepoint``."""

    jobs: dict[int, ModelJob]
    fates: dict[int, Fate]


def curve(attempt: int, base: int, cap: int) -> tuple[int, int]:
    """Return the least and greatest delay after an attempt, in whole seconds (J-7)."""
    top = min(cap, base * 2 ** (attempt - 1))
    return -(-top // 2), top


class ModelStore:
    """The whole store: every queue, every job that has a row, and what became of those that have none."""

    def __init__(self) -> None:
        self.jobs: dict[int, ModelJob] = {}
        self.fates: dict[int, Fate] = {}
        """Every job ever enqueued and committed, and where it is (Q-7)."""
        self._claims = 0

    # --- enqueue and claim ---------------------------------------------------------------------------------------

    def enqueue(
        self,
        now: int,
        job_id: int,
        queue: str,
        payload: object,
        *,
        visibility_timeout: int,
        max_attempts: int,
        backoff_base: int,
        backoff_cap: int,
        retention: int | None = None,
        priority: int = 0,
        delay: int | None = None,
        run_at: int | None = None,
        expires: int | None = None,
    ) -> None:
        """Take in a job under the id that the engine gave it, which no job had before (Q-ENQ-1, O-2, O-3)."""
        assert job_id not in self.fates, f"the id {job_id} is used a second time"
        self._put(
            ModelJob(
                id=job_id,
                queue=queue,
                payload=payload,
                priority=priority,
                max_attempts=max_attempts,
                visibility_timeout=visibility_timeout,
                backoff_base=backoff_base,
                backoff_cap=backoff_cap,
                retention=retention,
                created_at=now,
                run_at=now + delay if delay is not None else now if run_at is None else run_at,
                expires_at=None if expires is None else now + expires,
            )
        )

    def claim(self, now: int, queue: str, worker: str, n: int) -> list[ModelClaim]:
        """Bury what has lapsed with its budget spent, then hand out at most ``n`` in order (Q-CLAIM-1 to Q-CLAIM-6)."""
        if n <= 0:
            return []
        stranded = [job for job in self._live(queue) if job.lapsed(now) and job.spent]
        for job in sorted(stranded, key=lambda job: (job.deadline or 0, job.id))[:BURIED_PER_CLAIM]:
            self._bury(job, now, EXHAUSTED)
        ready = [job for job in self._live(queue) if job.claimable(now)]
        ready.sort(key=lambda job: (-job.priority, job.run_at, job.id))
        return [self._hand_out(job, now, worker) for job in ready[:n]]

    def _hand_out(self, job: ModelJob, now: int, worker: str) -> ModelClaim:
        self._claims += 1
        claim = ModelClaim(job.id, self._claims)
        deadline = now + job.visibility_timeout
        self._put(replace(job, attempts=job.attempts + 1, claim=claim, worker=worker, deadline=deadline))
        return claim

    # --- what a claim may do -------------------------------------------------------------------------------------

    def current(self, claim: ModelClaim) -> ModelJob | None:
        """Return the claim's job where the claim is its current one, whatever the deadline."""
        job = self.jobs.get(claim.job)
        return job if job is not None and job.claim == claim else None

    def valid(self, now: int, claim: ModelClaim) -> ModelJob | None:
        """Return the claim's job where the claim is current and its deadline hasn't passed (J-1)."""
        job = self.current(claim)
        return None if job is None or job.lapsed(now) else job

    def ack(self, now: int, claim: ModelClaim) -> bool:
        """Delete the job (J-2)."""
        job = self.valid(now, claim)
        if job is None:
            return False
        self._drop(job, Fate.ACKED)
        return True

    def conclude(self, claim: ModelClaim) -> bool:
        """Delete the job where the claim is current, lapsed or not: the ack of ``handle.transaction()`` (J-10)."""
        job = self.current(claim)
        if job is None:
            return False
        self._drop(job, Fate.ACKED)
        return True

    def heartbeat(self, now: int, claim: ModelClaim, extend: int | None = None) -> bool:
        """Set the deadline to now plus ``extend`` or the job's own timeout, never adding up (J-3)."""
        job = self.valid(now, claim)
        if job is None:
            return False
        self._put(replace(job, deadline=now + (job.visibility_timeout if extend is None else extend)))
        return True

    def retry(self, now: int, claim: ModelClaim, error: str | None, delay: int) -> bool:
        """Pending again after ``delay`` where budget is left, else dead (J-4, Z-5)."""
        job = self.valid(now, claim)
        if job is None:
            return False
        if job.spent:
            self._bury(job, now, EXHAUSTED if error is None else error)
        else:
            kept = job.last_error if error is None else error
            self._put(replace(_idle(job), run_at=now + delay, last_error=kept))
        return True

    def fail(self, now: int, claim: ModelClaim, error: str | None) -> bool:
        """Dead now (J-5)."""
        job = self.valid(now, claim)
        if job is None:
            return False
        self._bury(job, now, FAILED if error is None else error)
        return True

    def release(self, now: int, claim: ModelClaim, delay: int | None = None) -> bool:
        """Pending again with this attempt given back, in its old place unless delayed (J-6)."""
        job = self.valid(now, claim)
        if job is None:
            return False
        run_at = job.run_at if delay is None else now + delay
        self._put(replace(_idle(job), attempts=job.attempts - 1, run_at=run_at))
        return True

    # --- queue operations ----------------------------------------------------------------------------------------

    def ack_batch(self, now: int, queue: str, named: Iterable[ModelClaim | int]) -> int:
        """Ack claims, and by bare id whatever claim is valid; count each job once (Q-1, Q-2, Z-7)."""
        count = 0
        for one in named:
            job = self.jobs.get(one if isinstance(one, int) else one.job)
            claim = job.claim if job is not None and isinstance(one, int) else one
            if job is not None and job.queue == queue and isinstance(claim, ModelClaim):
                count += self.ack(now, claim)
        return count

    def cancel(self, queue: str, job_id: int) -> bool:
        """Delete a pending or processing job; a dead one stays (Q-3, Z-7)."""
        job = self.get(queue, job_id)
        if job is None or job.fate is Fate.DEAD:
            return False
        self._drop(job, Fate.CANCELLED)
        return True

    def get(self, queue: str | None, job_id: int) -> ModelJob | None:
        """Return the job of the queue, or (``None``) of any queue (Q-1, Q-4, Q-8)."""
        job = self.jobs.get(job_id)
        return None if job is None or queue not in (None, job.queue) else job

    def listing(self, queue: str, state: Fate | None = None) -> list[ModelJob]:
        """Return the queue's jobs by id (Q-6)."""
        found = (job for job in self.jobs.values() if job.queue == queue and state in (None, job.fate))
        return sorted(found, key=lambda job: job.id)

    def queues(self) -> list[str]:
        """Return the names of the queues that have rows, sorted (Q-8)."""
        return sorted({job.queue for job in self.jobs.values()})

    def stats(self, now: int, queue: str) -> ModelStats:
        """Count rows as they stand, swept or not, lapsed or not (Q-6)."""
        pending = self.listing(queue, Fate.PENDING)
        due = [job.run_at for job in pending if job.due(now)]
        return ModelStats(
            ready=len(due),
            scheduled=len(pending) - len(due),
            processing=len(self.listing(queue, Fate.PROCESSING)),
            dead=len(self.listing(queue, Fate.DEAD)),
            oldest_ready_age=now - min(due) if due else None,
        )

    def sweep(self, now: int, queue: str) -> int:
        """Bury what is expired or stranded, then drop the dead past their retention; count the first (Q-5, Q-CLAIM-6)."""
        moved = 0
        for job in self._live(queue):
            if job.expired(now) or (job.lapsed(now) and job.spent):
                self._bury(job, now, EXPIRED if job.expired(now) else EXHAUSTED)
                moved += 1
        for job in self.listing(queue, Fate.DEAD):
            if job.retention is not None and job.died_at is not None and job.died_at + job.retention <= now:
                self._drop(job, Fate.PAST_RETENTION)
        return moved

    def retry_dead(self, now: int, queue: str, job_id: int) -> bool:
        """Pending again under its id: no attempts, due now, its expiry lifted, its stamps kept (Q-6)."""
        job = self.get(queue, job_id)
        if job is None or job.fate is not Fate.DEAD:
            return False
        self._put(replace(job, attempts=0, run_at=now, expires_at=None, died_at=None))
        return True

    def purge(self, queue: str, state: Fate) -> int:
        """Delete the queue's rows in the state (Q-6)."""
        rows = self.listing(queue, state)
        for job in rows:
            self._drop(job, Fate.PURGED)
        return len(rows)

    # --- transactions --------------------------------------------------------------------------------------------

    def savepoint(self) -> Savepoint:
        """Return the store as it is, to be put back by ``rollback`` (T-1, T-5)."""
        return Savepoint(dict(self.jobs), dict(self.fates))

    def rollback(self, savepoint: Savepoint) -> None:
        """Undo everything since the savepoint; claim numbers alone are never given again (T-2, Q-CLAIM-5)."""
        self.jobs, self.fates = dict(savepoint.jobs), dict(savepoint.fates)

    # --- moving a job --------------------------------------------------------------------------------------------

    def _live(self, queue: str) -> list[ModelJob]:
        return [job for job in self.listing(queue) if job.fate is not Fate.DEAD]

    def _bury(self, job: ModelJob, now: int, error: str) -> None:
        self._put(replace(_idle(job), died_at=now, last_error=error))

    def _put(self, job: ModelJob) -> None:
        self.jobs[job.id] = job
        self.fates[job.id] = job.fate

    def _drop(self, job: ModelJob, fate: Fate) -> None:
        del self.jobs[job.id]
        self.fates[job.id] = fate


def _idle(job: ModelJob) -> ModelJob:
    """Return the job without its claim: worker, deadline and token gone together."""
    return replace(job, claim=None, worker=None, deadline=None)
