"""The records that go between the parts: public ones for users, plain ones for engines.

Users get ``Job``, ``QueueStats`` and ``Health``: frozen, with ``datetime`` and ``timedelta``. Engines give and take the
named tuples: every instant and duration in them is an ``int`` of microseconds (see ``alkstore.clock``), every text
and payload is exactly what is stored, and nothing is left to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, overload

from alkstore.clock import Micros, to_datetime, to_timedelta
from alkstore.codec import decode_headers


class State(StrEnum):
    """Where a job is. A job that was acked, cancelled or purged has no state: its row is gone."""

    PENDING = "pending"
    """Waiting to be claimed, due or not yet."""

    PROCESSING = "processing"
    """Claimed, its deadline ahead or lapsed."""

    DEAD = "dead"
    """Out of attempts, failed, or expired: kept to be looked at, retried or purged."""


class Outcome(StrEnum):
    """What a job came to (Z-17)."""

    SUCCEEDED = "succeeded"
    """It was acked, with a result."""

    CANCELLED = "cancelled"
    """It was cancelled, or purged while it was alive."""

    FAILED = "failed"
    """It is dead: out of attempts, failed, or expired."""


# --- between the front and the engines ---------------------------------------------------------------------------


class NewJob(NamedTuple):
    """A job to insert, with every default resolved (O-3)."""

    codec: str
    payload: bytes
    headers: str
    priority: int
    max_attempts: int
    visibility_timeout: Micros
    backoff_base: int
    backoff_cap: int
    retention: Micros | None
    """How long the job is kept once dead; ``None`` is for ever."""
    run_at: Micros
    """An instant, or with ``run_at_is_offset`` a duration that the statement adds to its one now."""
    run_at_is_offset: bool
    expires_in: Micros | None
    """A duration that the statement adds to its one now; ``None`` is never."""
    keep_result: Micros | None = None
    """How long what it comes to is kept, from then on; ``None``: nothing is."""


class Alike(Sequence[NewJob]):
    """Jobs that differ in nothing but their payloads: what most bulk inserts consist of.

    A sequence as any other. An engine that knows it can write what they share once, instead of comparing thousands of records.
    """

    __slots__ = ("pattern", "payloads")

    def __init__(self, pattern: NewJob, payloads: list[bytes]) -> None:
        """Have a job for each payload, in their order, otherwise like the pattern, whose own payload counts for nothing."""
        self.pattern: Final = pattern
        self.payloads: Final = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> NewJob: ...
    @overload
    def __getitem__(self, index: slice) -> Alike: ...
    def __getitem__(self, index: int | slice) -> NewJob | Alike:
        if isinstance(index, slice):
            return Alike(self.pattern, self.payloads[index])
        return self.pattern._replace(payload=self.payloads[index])


class JobRow(NamedTuple):
    """A job as an engine reads it back, live or dead."""

    id: int
    queue: str
    state: State
    codec: str
    payload: bytes
    headers: str
    priority: int
    attempts: int
    max_attempts: int
    created_at: Micros
    run_at: Micros
    expires_at: Micros | None
    visibility_timeout: Micros
    backoff_base: int
    backoff_cap: int
    retention: Micros | None
    worker_id: str | None
    lease_until: Micros | None
    """The claim's deadline: the claim is valid while now <= lease_until (Q-CLAIM-4)."""
    token: int | None
    """The claim token, while the job is processing."""
    last_error: str | None
    died_at: Micros | None
    keep_result: Micros | None = None


class ClaimRef(NamedTuple):
    """Names one claim: the job, and the token that the claim was given."""

    job_id: int
    token: int | None
    """``None`` names whatever claim is the job's current one (a bare id in ``ack_batch``, Q-2)."""


class ResultRef(NamedTuple):
    """A claim whose job is done, and what it came to, if its job keeps that (Z-17)."""

    job_id: int
    token: int | None
    """As in ``ClaimRef``."""
    payload: bytes
    """The encoded result."""


class RetryRef(NamedTuple):
    """A claim to give back for a later attempt (J-4)."""

    job_id: int
    token: int
    delay: Micros
    error: str | None
    """``None`` keeps the ``last_error`` of the live row (Z-5)."""


class BuryRef(NamedTuple):
    """A claim whose job is to be moved to the dead table (J-5)."""

    job_id: int
    token: int
    error: str


class ReleaseRef(NamedTuple):
    """A claim to give back unworked (J-6)."""

    job_id: int
    token: int
    delay: Micros | None
    """``None`` keeps ``run_at``, and with it the job's old place in the queue."""


class ClaimBatch(NamedTuple):
    """What one unit of a claim did."""

    rows: list[JobRow]
    """The claimed jobs, in the order of Q-CLAIM-3."""
    again: bool
    """The unit readied as many jobs as one unit may, and claimed nothing yet: commit, and call again."""


class SweepBatch(NamedTuple):
    """What one unit of a sweep did."""

    moved: int
    """Jobs moved to the dead table."""
    again: bool
    """The unit did as much as one unit may: commit, and call again."""


class PurgeBatch(NamedTuple):
    """What one unit of a purge did."""

    deleted: int
    """Rows deleted."""
    again: bool
    """The unit looked at as many rows as one unit may, and deleted those that were still in the state: call again."""


class Moved(NamedTuple):
    """What became of a claim's deadline."""

    deadline: Micros
    sooner: bool
    """It is sooner than it was: whoever sleeps until the job is due is to be told (W-4)."""


class KeptBatch(NamedTuple):
    """What became of jobs of which some keep what they come to."""

    done: list[int]
    """The jobs that were deleted."""
    kept: list[int]
    """Those of them that have left a result."""


class ResultRow(NamedTuple):
    """What a job has come to, as an engine reads it: from a kept result, or from the job itself where it is still there."""

    job_id: int
    queue: str
    outcome: Outcome | None
    """``None``: the job is alive."""
    codec: str | None
    payload: bytes | None
    """The encoded result, of a job that succeeded."""
    attempts: int
    finished_at: Micros | None
    expires_at: Micros | None
    """Until when it is kept; of a dead job, when its own retention is over, ``None`` for never."""
    worker_id: str | None
    """Who had it claimed; of a dead job that isn't known any more."""
    error: str | None
    """What a dead job died of."""
    keep_result: Micros | None
    """Of a job, dead or alive: what it is stamped with."""


class DueRow(NamedTuple):
    """When a claim may next find something, as an engine reads it."""

    now: Micros
    """The now that it was judged by."""
    due: Micros | None
    """At most ``now`` where something is there already, else when the next job becomes due, or a claim lapses; ``None``
    where nothing is waiting."""


class StatsRow(NamedTuple):
    """A queue's counts as an engine reads them."""

    ready: int
    scheduled: int
    processing: int
    dead: int
    oldest_ready_at: Micros | None
    """The least ``run_at`` among the ready jobs."""
    now: Micros
    """The now that ready and scheduled were told apart by."""


# --- for users ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as it was at the moment of reading.

    Instants are aware ``datetime``s in UTC. ``worker_id`` and ``claim_expires_at`` are set while it is processing,
    ``died_at`` once it is dead, ``last_error`` after a retry or a death.
    """

    id: int
    queue: str
    state: State
    raw: bytes = field(repr=False)
    codec: str
    headers: Mapping[str, str] = field(hash=False)
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    expires_at: datetime | None
    visibility_timeout: timedelta
    worker_id: str | None
    claim_expires_at: datetime | None
    last_error: str | None
    died_at: datetime | None
    keep_result: timedelta | None
    _decode: Callable[[str, bytes], object] = field(repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The payload, decoded anew at each reading by the codec whose name is stored with it.

        Raises ``PayloadError`` where that codec isn't known or can't decode the bytes; ``raw`` has them (Q-CLAIM-7).
        """
        return self._decode(self.codec, self.raw)

    @classmethod
    def from_row(cls, row: JobRow, decode: Callable[[str, bytes], object]) -> Job:
        """Make the record of an engine's row."""
        return cls(
            id=row.id,
            queue=row.queue,
            state=row.state,
            raw=row.payload,
            codec=row.codec,
            headers=decode_headers(row.headers),
            priority=row.priority,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            created_at=to_datetime(row.created_at),
            run_at=to_datetime(row.run_at),
            expires_at=_maybe(row.expires_at),
            visibility_timeout=to_timedelta(row.visibility_timeout),
            worker_id=row.worker_id,
            claim_expires_at=_maybe(row.lease_until),
            last_error=row.last_error,
            died_at=_maybe(row.died_at),
            keep_result=None if row.keep_result is None else to_timedelta(row.keep_result),
            _decode=decode,
        )


def _maybe(micros: Micros | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a job came to (Z-17)."""

    job_id: int
    queue: str
    outcome: Outcome
    raw: bytes | None = field(repr=False)
    """The result's bytes, where it succeeded."""
    codec: str | None
    attempts: int
    """How many claims it had."""
    finished_at: datetime
    expires_at: datetime | None
    """Until when it can be asked for; ``None``, of a dead job that is kept for ever."""
    worker_id: str | None
    """Who acked it, or had it claimed as it was cancelled."""
    error: str | None
    """What it died of, where it failed."""
    _decode: Callable[[str, bytes], object] = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """What the job was acked with, decoded anew at each reading; ``None`` also where it didn't succeed.

        Raises ``PayloadError`` where its codec isn't known or can't decode it; ``raw`` has the bytes.
        """
        return None if self.raw is None or self.codec is None else self._decode(self.codec, self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What a listener gets (W-1)."""

    channel: str
    """The channel that it was sent to; for a gap, empty."""
    payload: str
    """The text that was sent with it."""
    gap: bool = False
    """Some may have been lost here: the connection was cut, or the reader too slow (W-2, W-3)."""


GAP: Final = Notification(channel="", payload="", gap=True)
"""What a listener gets where something may have been lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """A queue's counts, of rows as they stand, swept or not (Q-6)."""

    ready: int
    """Pending and due."""
    scheduled: int
    """Pending and not yet due."""
    processing: int
    """Claimed, the deadline ahead or lapsed."""
    dead: int
    oldest_ready_age: timedelta | None
    """How long the oldest ready job has been due; ``None`` where none is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a check or a dashboard wants to know of a store (Q-8)."""

    engine: str
    """The engine's name, as in ``sqlite``."""
    server_version: str
    """The version of the database, as it spells it."""
    schema_version: tuple[int, int]
    """Major and minor version of the schema in the database."""
    code_version: tuple[int, int]
    """Major and minor version of the schema that this code was written for."""
    durability: str
    """``full`` or ``relaxed``, as opened."""
    now: datetime
    """The instant that the store calls now."""
    clock_skew: timedelta
    """The database's clock minus this host's; zero where the host's clock is the database's."""
    oldest_snapshot_age: timedelta | None
    """How long the oldest snapshot has been holding back the clean-up of dead rows; ``None`` where there is none."""
    wal_bytes: int | None
    """Size of the write-ahead log, in bytes; ``None`` where the role may not see it."""
    wakes: str
    """``notify`` where commits of other processes wake this store's waiters at once, as far as is known now; ``poll`` where they
    look now and then. In a store in which nobody waits it says what was so when somebody did."""
    wakes_reason: str | None = None
    """Why they look now and then; ``None`` where they are woken."""
