"""What an engine author implements, and nothing else.

An engine is found through the entry-point group ``alkstore.engines``: the entry's name is the URL's scheme, and it
loads an ``EngineFactory``. The factory opens the place that the URL names and gives an ``Engine``. Everything that
the engine then does goes through an ``Executor``, which is handed out in two forms with the same operations:

* ``engine.executor()``: each call is a transaction of its own, committed when it returns, and run again inside where
  the database asks for that (serialisation failures, deadlocks; Z-12);
* ``engine.begin().executor``: each call runs within that transaction, and nothing is committed, run again or rolled
  back by the call itself.

The operations are single, bounded units on resolved records (``alkstore.records``): instants and durations are integers
of microseconds, texts and payloads are stored exactly as given. Above the engine lies everything that is decided once
for all engines: names, options, codecs, backoff, error texts, chunks, and which unit follows which. An engine raises
alkstore's own errors (``alkstore.errors``), with the driver's exception as the cause.

``now`` is in every operation that depends on time: ``None`` means the database's own clock (a server's
``statement_timestamp()``, else the host's), read once per call; an ``int`` is the reading of the store's ``clock=`` and
replaces it wholly.

A claim is *current* while it is the job's latest and the job is still processing. It is *valid* while it is current and
``now <= lease_until``. Operations that take references judge each by its token, change those that are valid, pass over
the rest in silence, and return the ids that they changed (J-1). Those that lock several rows lock them in id order, so
that two of them can't deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from alkstore.capabilities import Capabilities
from alkstore.clock import Micros
from alkstore.records import (
    BuryRef,
    ClaimBatch,
    ClaimRef,
    DueRow,
    Health,
    JobRow,
    KeptBatch,
    Moved,
    NewJob,
    Notification,
    PurgeBatch,
    ReleaseRef,
    ResultRef,
    ResultRow,
    RetryRef,
    State,
    StatsRow,
    SweepBatch,
)

Durability: TypeAlias = Literal["full", "relaxed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options of ``alkstore.open`` that concern every engine, checked."""

    migrate: bool
    """Create or upgrade the schema when opening; else refuse one that isn't current (S-2)."""
    durability: Durability
    """``full``: a commit survives a power cut. ``relaxed``: it survives the process, and may be lost to a power cut."""
    lock_timeout: Micros
    """How long to wait for a lock or a free connection before ``EngineBusyError`` (Z-12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTexts:
    """The reasons that a sweep writes, so that the words are the same on every engine."""

    expired: str
    exhausted: str


class Executor(Protocol):
    """The queue operations, each a single bounded unit."""

    def now(self) -> Micros:
        """Return the engine's own clock."""
        ...

    def insert(self, queue: str, jobs: Sequence[NewJob], now: Micros | None) -> list[int]:
        """Insert the jobs in one statement, all or none, and return their ids, the i-th for the i-th (Q-ENQ-3).

        ``created_at`` is the call's one now, to which offsets are added (O-3). Ids grow in the order of ``jobs``, and
        one that was once committed is never used again (Q-ENQ-1).
        """
        ...

    def claim(
        self, queue: str, worker_id: str, count: int, exhausted: str, bury: int, ripen: int, now: Micros | None
    ) -> ClaimBatch:
        """Claim at most ``count`` (1 or more) jobs, in the order and by the rules of Q-CLAIM-2 to Q-CLAIM-6.

        In the same transaction, and first, at most ``bury`` lapsed jobs whose budget is spent go to the dead table with
        the text ``exhausted``, the oldest deadline first. An engine that keeps what isn't due apart from what can be
        handed out moves at most ``ripen`` jobs over; where more are left, it claims nothing and says ``again``, so that
        the order stays exact and no transaction grows without bound.
        """
        ...

    def recall(self, queue: str, ref: ClaimRef) -> JobRow | None:
        """Return the job where the claim is its current one, whatever the deadline; a pure read.

        Here, in ``hold`` and in ``conclude`` a reference without a token names no claim.
        """
        ...

    def hold(self, queue: str, ref: ClaimRef, now: Micros | None) -> bool:
        """Say whether the claim is valid, and keep it from being reclaimed until the transaction ends (J-10).

        Called only within a transaction.
        """
        ...

    def conclude(self, queue: str, ref: ClaimRef) -> bool:
        """Delete the job where the claim is its current one, whatever the deadline (J-10)."""
        ...

    def ack(self, queue: str, refs: Sequence[ClaimRef], now: Micros | None) -> list[int]:
        """Delete the jobs whose claims are valid (J-2, Q-2).

        A job that keeps its result is refused here and in ``conclude``: nothing of it would be left (see ``Results``).
        """
        ...

    def extend(
        self, queue: str, refs: Sequence[ClaimRef], extension: Micros | None, now: Micros | None
    ) -> dict[int, Moved]:
        """Set the deadlines to now plus ``extension``, or each job's own ``visibility_timeout`` (J-3).

        Returns the new deadlines by id. One reference waits for the row where another transaction has it locked. Of
        many, those that are locked may be passed over, so that one open transaction doesn't cost all the others their
        leases: that a reference is missing from the answer then doesn't prove its claim lost, and it can be asked
        alone.
        """
        ...

    def retry(self, queue: str, refs: Sequence[RetryRef], exhausted: str, now: Micros | None) -> list[int]:
        """Make pending again, due at now plus the delay, where budget is left; else bury (J-4).

        A buried job's ``last_error`` is the reference's error, or ``exhausted`` where that is ``None``.
        """
        ...

    def bury(self, queue: str, refs: Sequence[BuryRef], now: Micros | None) -> list[int]:
        """Move to the dead table (J-5, J-8)."""
        ...

    def release(self, queue: str, refs: Sequence[ReleaseRef], now: Micros | None) -> list[int]:
        """Make pending again, with one attempt fewer, and ``run_at`` kept unless delayed (J-6)."""
        ...

    def cancel(self, queue: str, job_ids: Sequence[int]) -> list[int]:
        """Delete pending and processing jobs of the queue; return the ids of those that were there (Q-3)."""
        ...

    def get(self, queue: str | None, job_id: int) -> JobRow | None:
        """Return a job, live or dead, of the queue or (``None``) of any; a pure read (Q-4, Q-8)."""
        ...

    def list(self, queue: str, state: State | None, after: int, limit: int) -> list[JobRow]:
        """Return the queue's jobs with an id over ``after``, by id, at most ``limit`` (Q-6)."""
        ...

    def stats(self, queue: str, now: Micros | None) -> StatsRow:
        """Count the queue's rows as they stand (Q-6)."""
        ...

    def next_due(self, queue: str, now: Micros | None) -> DueRow:
        """Return when a claim may next find something, or has something to bury; a pure read (W-4).

        Too early is allowed, too late is not: whoever waits claims then, and looks again.
        """
        ...

    def queues(self) -> list[str]:
        """Return the names of the queues that have rows, live, dead or results, sorted by code point (Q-8)."""
        ...

    def sweep(self, queue: str, limit: int, texts: SweepTexts, now: Micros | None) -> SweepBatch:
        """Move at most ``limit`` expired or lapsed-and-exhausted jobs to the dead table (Q-5, Q-CLAIM-6).

        Then delete at most ``limit`` dead jobs past their own retention: those are not counted in ``moved``.
        """
        ...

    def revive(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> list[int]:
        """Make dead jobs pending again under their ids: no attempts, due now, no expiry (Q-6)."""
        ...

    def notify(self, channel: str, payload: str) -> None:
        """Send to whoever listens to the channel once this is committed (W-1); where ``notify`` is declared."""
        ...

    def purge(self, queue: str, state: State, limit: int) -> PurgeBatch:
        """Delete at most ``limit`` of the queue's rows in the state (Q-6).

        Rows that others hold are waited for. They may have left the state by then, so that fewer than ``limit`` were
        deleted does not say that none are left: ``again`` does.
        """
        ...


class Results(Protocol):
    """What an executor has besides, of an engine that declares the capability ``results`` (Z-16, Z-17).

    What a job came to lies under its id: the outcome, and until when it is kept, the job's ``keep_result`` after it was
    done. It is written in the same transaction as the job is deleted in, for jobs that are stamped with ``keep_result``
    alone. An engine that has these has ``cancel`` and ``purge`` do what is said here by its own clock.
    """

    def ack_keeping(self, queue: str, refs: Sequence[ResultRef], codec: str, now: Micros | None) -> KeptBatch:
        """Do as ``ack``, and keep the results of those jobs that keep them, encoded by ``codec``."""
        ...

    def conclude_keeping(self, queue: str, ref: ResultRef, codec: str, now: Micros | None) -> KeptBatch:
        """Do as ``conclude``, and keep the result if the job keeps it."""
        ...

    def cancel_keeping(self, queue: str, job_ids: Sequence[int], now: Micros | None) -> KeptBatch:
        """Do as ``cancel``, and leave a tombstone of those jobs that keep results."""
        ...

    def purge_keeping(self, queue: str, state: State, limit: int, now: Micros | None) -> PurgeBatch:
        """Do as ``purge``, and leave a tombstone of those jobs that were alive and keep results."""
        ...

    def result(self, queue: str | None, job_id: int, now: Micros | None) -> ResultRow | None:
        """Return what a job of the queue, or (``None``) of any, has come to; a pure read of one moment.

        What is past its time isn't there, swept or not. Jobs' payloads aren't read for it.
        """
        ...

    def prune_results(self, queue: str, limit: int, now: Micros | None) -> int:
        """Delete at most ``limit`` results of the queue that are past their time, and return how many."""
        ...


class OpenConnection(Protocol):
    """A connection that operations run on, one after the other, with whatever transaction is open on it."""

    @property
    def executor(self) -> Executor:
        """The operations, on this connection."""
        ...

    @property
    def usable(self) -> bool:
        """Whether the connection is open and the database would take a statement on it now (T-5).

        Known without a round trip. ``False`` once a failed statement aborted the transaction, or something outside
        ended it.
        """
        ...

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None) -> object:
        """Run the application's own statement, and return the driver's cursor; its errors come out bare (T-1).

        The cursor is to be read before the transaction ends.
        """
        ...

    def savepoint(self, name: str) -> None:
        """Set a savepoint; the names are the front's own, plain identifiers, innermost last."""
        ...

    def release_savepoint(self, name: str) -> None:
        """Keep what was done since the savepoint."""
        ...

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since the savepoint, and drop it; heals a transaction that failed since."""
        ...


class JoinedConnection(OpenConnection, Protocol):
    """The application's connection, with whatever it has open on it (T-3).

    It is never committed, rolled back, closed or reconfigured, and the application's own settings of it (row factories,
    adapters) have no effect on the operations. Each operation is done whole or not at all, and a refused one leaves an
    open transaction as usable as the database can. With none open, the connection's own rule holds: in auto-commit mode
    each operation is a transaction of its own, else it opens one for the application to commit.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open on it now, also an aborted one; known without a round trip.

        None is open on a connection that is closed.
        """
        ...

    @property
    def auto_commits(self) -> bool:
        """Whether none is open, and an operation would be committed at once; known without a round trip."""
        ...

    def ring(self, queue: str, count: int) -> None:
        """Have the database tell those who wait, when the application commits (see ``Heard``).

        Asked for only where ``notify`` is declared. An engine whose waiters see every commit anyway does nothing.
        """
        ...

    def atomic(self) -> AbstractContextManager[None]:
        """Return a block in which operations are done together or not at all, whoever catches what they raise."""
        ...


class EngineTransaction(OpenConnection, Protocol):
    """One open transaction of the engine's own, used by one thread."""

    def commit(self) -> None:
        """Commit, and end the transaction; raise ``OutcomeUnknownError`` where the answer was cut off."""
        ...

    def rollback(self) -> None:
        """Roll back, and end the transaction; never raises for a transaction or connection that is gone."""
        ...


class Engine(Protocol):
    """One open place, safe for threads and across ``fork()`` (S-4)."""

    @property
    def name(self) -> str:
        """The engine's name, as people call it: ``sqlite``."""
        ...

    @property
    def url(self) -> str:
        """The URL by which the same place can be opened again, from anywhere; with its password, so not for messages."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do (S-7)."""
        ...

    def executor(self) -> Executor:
        """Return the operations, each in a transaction of its own."""
        ...

    def begin(self) -> EngineTransaction:
        """Begin a transaction that may read first and write later without failing for it (T-6)."""
        ...

    def health(self) -> Health:
        """Say how the database is (Q-8)."""
        ...

    def close(self) -> None:
        """Close the engine's own connections; called once. Transactions still open in threads are rolled back."""
        ...


class Joining(Protocol):
    """What an engine has besides that declares the capability ``join``."""

    def join(self, connection: object) -> JoinedConnection:
        """Return the application's connection, ready for operations.

        Raises ``ValidationError`` for what isn't an open connection of the engine's driver, and for one to another
        database than the store's; nothing was written by then, and no transaction opened, aborted or ended.
        """
        ...


Heard: TypeAlias = Callable[[str | None, int], None]
"""Told of a ring: the queue, and how many jobs can be had; 0: something there changed; no queue: anything may have."""


class Subscription(Protocol):
    """What one listener gets, in the order of the commits (W-1)."""

    def get(self, timeout: float | None) -> Notification | None:
        """Return the next notification, waiting for it for so many seconds (``None``: for ever), or ``None``.

        Raises ``StoreClosedError`` once the engine is closed, and an ``EngineError`` where nothing can come any more.
        """
        ...

    def close(self) -> None:
        """End it; a ``get`` that waits in another thread gives ``None``."""
        ...


class Notifying(Protocol):
    """What an engine has besides that declares the capability ``notify``."""

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Tell other processes of jobs that can be had by now (see ``Heard``), and that something was notified.

        Called after the commit, on a thread of its own, seldom enough to be sent each time. It may fail, and be lost.
        """
        ...

    def is_heard(self, rings: Mapping[str, int], *, notified: bool) -> bool:
        """Say whether ``ring`` would tell anybody; asked after each commit, so without asking the database."""
        ...

    def attend(self, heard: Heard, who: object) -> None:
        """Begin to hear what others ring, for as long as ``who`` lives; doesn't wait where that takes long.

        As soon as it is so, it tells of any change once: whoever looked before may have missed something. It goes on by
        itself across lost connections, and tells of them likewise. ``who`` is referred to weakly: a
        signal's handler may raise anywhere, and nobody would end then what had just been begun.
        """
        ...

    def leave(self, who: object) -> None:
        """End what ``attend`` began for it, if it did."""
        ...

    def listen(self, channels: frozenset[str]) -> Subscription:
        """Return a subscription to whatever is committed from now on; raise ``EngineError`` where that can't be had."""
        ...


class EngineFactory(Protocol):
    """What the entry point loads: opens the place that a URL names."""

    def __call__(self, url: str, options: EngineOptions, extra: Mapping[str, object]) -> Engine:
        """Open the engine, its schema created, upgraded or checked (S-2).

        ``extra`` holds the keywords of ``alkstore.open`` that are the engine's own; it raises ``ValidationError`` for
        those that it doesn't know, and for a URL it can't read, without repeating a password (S-6).
        """
        ...
