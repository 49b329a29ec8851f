"""A job in a worker's hands, from its claim until it is settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from alkstore.clock import Duration, Micros
from alkstore.handle import JobHandle
from alkstore.records import ClaimRef, Job, JobRow

if TYPE_CHECKING:
    from alkstore.store import Store
    from alkstore.transaction import Transaction


class Stage(Enum):
    """How far a job has come in this worker."""

    WAITING = "waiting"
    """Claimed, and no handler has begun."""
    RUNNING = "running"
    CONCLUDED = "concluded"
    """It is decided what becomes of it: whoever decided comes first, and nobody else after him."""


class RunningJob:
    """What a handler is given: the job, and what can be done with it while it runs."""

    __slots__ = ("_away", "_handle", "_lock", "_lost", "_row", "_stage", "_stopping", "_told", "claimed_at")

    def __init__(self, handle: JobHandle, row: JobRow, stopping: threading.Event, claimed_at: float) -> None:
        self.claimed_at = claimed_at
        """When it was claimed, or a little earlier, by the monotonic clock."""
        self._handle = handle
        self._row = row
        self._stopping = stopping
        self._lock = threading.Lock()
        self._stage = Stage.WAITING
        self._lost = False
        self._away = False
        self._told: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} of {self.queue!r}>"

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """The job's id."""
        return self._row.id

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._row.queue

    @property
    def attempt(self) -> int:
        """Which claim of the job this is, from 1."""
        return self._row.attempts

    @property
    def payload(self) -> Any:
        """The decoded payload; ``PayloadError`` where it can't be decoded, which is a failed attempt like any."""
        return self._handle.payload

    @property
    def raw(self) -> bytes:
        """The payload's bytes."""
        return self._row.payload

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, as enqueued."""
        return self._handle.headers

    @property
    def priority(self) -> int:
        """The priority, as enqueued."""
        return self._row.priority

    @property
    def deadline(self) -> datetime:
        """Until when the claim is valid, as far as this worker knows: it is extended all the time."""
        return self._handle.deadline

    @property
    def job(self) -> Job:
        """The record as claimed."""
        return self._handle.job

    @property
    def handle(self) -> JobHandle:
        """The claim itself, for ``tx.bind(job.handle)``. A job that is settled with it is left alone afterwards."""
        return self._handle

    @property
    def store(self) -> Store:
        """The worker's store; in a process of the worker's one of its own, on the same place, opened when first asked for."""
        return self._handle.store

    # --- what becomes of it --------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether the claim is not this worker's any more: what the handler does from now on, another does as well.

        So after a deadline that passed, a cancelled job, a handler's timeout, and a stop whose grace period is over. There is
        no ack then. A long handler looks now and then, and gives up.
        """
        return self._lost

    @property
    def stopping(self) -> bool:
        """Whether the worker has been asked to stop: a long handler may come to an early end, by ``Retry`` say."""
        return self._stopping.is_set()

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Commit the job's effects and its ack together: exactly once, for effects in this database (J-10)."""
        return self._handle.transaction()

    def heartbeat(self, extend: Duration | None = None) -> bool:
        """Extend the claim by hand (J-3). The worker does so by itself, a third of the visibility timeout after the last."""
        return self._handle.heartbeat(extend)

    # --- for the worker's parts ----------------------------------------------------------------------------------

    @property
    def row(self) -> JobRow:
        """The row as claimed."""
        return self._row

    @property
    def ref(self) -> ClaimRef:
        """The claim's reference."""
        return self._handle.claim.ref

    @property
    def keeps_result(self) -> bool:
        """Whether what its handler returns is kept."""
        return self._row.keep_result is not None

    @property
    def spent(self) -> bool:
        """Whether this is its last attempt."""
        return self._row.attempts >= self._row.max_attempts

    @property
    def is_running(self) -> bool:
        """Whether a handler has it, and nothing was decided yet."""
        return self._stage is Stage.RUNNING

    def begin(self) -> bool:
        """Let a handler begin; ``False`` where it was decided otherwise by now."""
        with self._lock:
            if self._stage is not Stage.WAITING:
                return False
            self._stage = Stage.RUNNING
            return True

    def conclude(self, *, lost: bool = False) -> bool:
        """Decide what becomes of it; ``False`` where that was decided before. ``lost`` tells the handler."""
        with self._lock:
            if self._stage is Stage.CONCLUDED:
                return False
            self._stage = Stage.CONCLUDED
            self._lost |= lost
        if lost:
            self._tell()
        return True

    def lose(self) -> None:
        """Note that the claim is gone, also after it was decided."""
        with self._lock:
            self._lost = True
        self._tell()

    # --- for a handler that runs in another process ---------------------------------------------------------------

    def follow(self, told: Callable[[], None] | None) -> None:
        """Call it, in whichever thread, whenever ``lost`` or the deadline has changed."""
        self._told = told

    def _tell(self) -> None:
        told = self._told
        if told is not None:
            told()

    def extended(self, deadline: Micros) -> None:
        """Note that the worker has extended the claim."""
        self._handle.claim.extended(deadline, None)
        self._tell()

    def go_away(self, away: bool) -> None:
        """Note whether another process has a transaction of the job open."""
        self._away = away

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction of the job is open, here or there: its row is locked, and the claim safe (J-10)."""
        return self._away or self._handle.in_transaction
