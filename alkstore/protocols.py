"""What applications are typed against: the contract's sentences, with their clause ids.

Read this first. The front's classes inherit from these, and the contract suite uses nothing else. ``docs/contract.md``
has every clause in full.

Points in time are timezone-aware ``datetime``s, in UTC on the way out; durations are a ``timedelta`` or a number of
seconds. Every method checks, in this order: that the store is open (``StoreClosedError``), its arguments
(``ValidationError``, before anything is written), and that the thread has no transaction of the store open where the
call would run outside it (``TransactionError``, T-5). Every method that reaches the database may raise an
``EngineError`` (``EngineUnavailableError``, ``EngineBusyError``, ``OutcomeUnknownError``, ...).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, Self, Unpack

from alkstore.capabilities import Capabilities
from alkstore.clock import Duration
from alkstore.codec import Codec
from alkstore.options import JobOptions, QueueFields, QueueOptions
from alkstore.records import Health, Job, Notification, QueueStats, Result, State


class JobHandle(Protocol):
    """One claim of one job: it speaks for that claim, by its token, and for no other (J-1).

    ``ack``, ``heartbeat``, ``retry``, ``fail`` and ``release`` apply only while the claim is the job's current one and
    its deadline hasn't passed. Otherwise they change nothing and return ``False``: a refusal is never an exception, and
    a second ``ack`` is a refusal. The worker's name plays no part.
    """

    @property
    def id(self) -> int:
        """The job's id."""
        ...

    @property
    def token(self) -> int:
        """The claim token, never used twice: ``queue.handle(id, token)`` rebuilds the handle elsewhere (Q-8)."""
        ...

    @property
    def queue(self) -> str:
        """The queue's name."""
        ...

    @property
    def attempt(self) -> int:
        """Which claim of the job this is, from 1 (Q-CLAIM-5)."""
        ...

    @property
    def payload(self) -> Any:
        """The decoded payload; ``PayloadError`` where it can't be decoded, and ``raw`` has the bytes (Q-CLAIM-7)."""
        ...

    @property
    def raw(self) -> bytes:
        """The payload's bytes, exactly as stored."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, as enqueued."""
        ...

    @property
    def priority(self) -> int:
        """The priority, as enqueued."""
        ...

    @property
    def deadline(self) -> datetime:
        """Until when the claim is valid, as far as this handle knows: as claimed, or as last extended."""
        ...

    @property
    def job(self) -> Job:
        """The record as claimed."""
        ...

    def ack(self, *, result: object = None) -> bool:
        """Delete the job: its work is done (J-2). Where the job keeps its result, that is stored in the same commit (Z-17).

        ``result`` goes through the JSON codec: ``PayloadError``, before any I/O, for what can't be encoded or is over
        ``max_result``. Whoever enqueued the job has said whether it is kept (``keep_result``): if not, it is dropped.
        Without it, and where ``with handle:``, ``transaction()`` or ``ack_batch`` acks, the result is ``None``. Raises
        ``NotSupportedError`` for a result where the engine keeps none.
        """
        ...

    def heartbeat(self, extend: Duration | None = None) -> bool:
        """Set the deadline to now plus ``extend``, or the job's own ``visibility_timeout`` (J-3).

        Absolute, never added up. Too late is ``False``. ``extend`` is over 0, else ``ValidationError`` (Z-1).
        """
        ...

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None) -> bool:
        """Give the job back for a later attempt, or bury it where its budget is spent (J-4).

        Due after ``delay``, else after a draw of the job's own backoff curve for this attempt. ``error`` is kept as
        ``last_error``, verbatim but for J-9; an exception becomes ``Type: text``; ``None`` keeps the earlier one, and
        on a dead job is ``max attempts exceeded``.
        """
        ...

    def fail(self, error: str | BaseException | None = None) -> bool:
        """Move the job to the dead table now, with ``error`` or ``failed`` (J-5)."""
        ...

    def release(self, delay: Duration | None = None) -> bool:
        """Give the job back as if never claimed: for work taken and not begun, never for work still running (J-6).

        It keeps its ``run_at``, and so its old place, unless delayed; this claim's attempt is given back.
        """
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Commit the job's own effects and its ack together: exactly once, for effects in this database (J-10).

        Raises ``ClaimLostError`` on entry where the claim isn't valid, and on the way out, everything rolled back,
        where it is somebody else's by then. An exception rolls back, retries the job with its text, and goes on up.
        Inside, the handle is bound to the transaction, and settling it there replaces the ack (Z-3): with
        ``handle.ack(result=...)`` the result commits with the effects (Z-17).
        """
        ...

    def __enter__(self) -> Self:
        """Begin work that is acked when the block ends well."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack on success (``ClaimLostError`` where refused); retry with the exception's text otherwise (J-10, Z-3).

        A handle that was settled inside is left alone. The exception is never hidden, not even by a retry that fails.
        """
        ...


class Queue(Protocol):
    """A queue of jobs: a name, and the options that it stamps on what it enqueues. Making one does no I/O (N-3)."""

    @property
    def name(self) -> str:
        """The queue's name, exactly as given."""
        ...

    @property
    def options(self) -> QueueOptions:
        """The options stamped on jobs enqueued through this handle (O-1)."""
        ...

    def enqueue(self, payload: object, **options: Unpack[JobOptions]) -> int:
        """Store a job and return its id; committed and durable when it returns (Q-ENQ-1).

        The payload goes through the handle's codec, and comes back equal and of the same type (Q-ENQ-2). Options:
        ``delay``, ``run_at``, ``priority``, ``expires``, ``max_attempts``, ``headers`` (O-2), ``keep_result`` (Z-17).
        Raises ``PayloadError`` naming the place inside the payload, before any I/O, and ``NotSupportedError`` for
        ``keep_result`` where the engine keeps none.
        """
        ...

    def enqueue_many(self, items: Iterable[object], **options: Unpack[JobOptions]) -> list[int]:
        """Store many jobs, all or none, and return their ids, the i-th for the i-th item (Q-ENQ-3).

        An item is a payload, or an ``Item`` where one job's options differ; keywords are the defaults (Z-9). The
        iterable is read to its end, and everything encoded, before anything is written or locked.
        """
        ...

    def claim_one(self, worker_id: str) -> JobHandle | None:
        """Claim the next job, or ``None`` where nothing is claimable now (Q-CLAIM-1 to Q-CLAIM-7)."""
        ...

    def claim_batch(self, worker_id: str, n: int) -> list[JobHandle]:
        """Claim at most ``n`` jobs, highest priority first, then by ``run_at``, then by id (Q-CLAIM-3).

        A claim adds one to ``attempts`` and is valid for the job's own ``visibility_timeout``; a lapsed job is
        claimable again while it has budget, and is buried when it has none (Q-CLAIM-4 to Q-CLAIM-6). ``n <= 0`` is
        ``[]`` without I/O.
        """
        ...

    def handle(self, job_id: int, token: int) -> JobHandle:
        """Rebuild a handle from ``handle.id`` and ``handle.token``, elsewhere; no I/O until it is used (Q-8).

        Its attributes are read when first asked for, and raise ``ClaimLostError`` where the claim isn't the job's
        current one.
        """
        ...

    def ack_batch(self, handles_or_ids: Iterable[JobHandle | int]) -> int:
        """Ack many at once and return how many (Q-2).

        A handle is judged as in ``ack``; a bare id counts where the job is processing and its deadline hasn't passed.
        Duplicates count once (Z-7). A handle of another queue isn't counted; of another store: ``ValidationError``.
        """
        ...

    def cancel(self, job_id: int) -> bool:
        """Delete a pending or processing job, and say whether it was there; a dead job is ``False`` (Q-3, Z-7).

        Its worker isn't interrupted, but its handle is refused from then on. Against an open
        ``handle.transaction()``, the first to commit wins. A job that keeps its result leaves a tombstone (Z-17).
        """
        ...

    def get_job(self, job_id: int) -> Job | None:
        """Return the queue's job, dead ones included, or ``None``; a pure read (Q-4)."""
        ...

    def result(self, job_id: int) -> Result | None:
        """Return what the queue's job has come to, or ``None`` where that isn't known; a pure read (Z-17).

        Of a job that was enqueued with ``keep_result``: what it was acked with, or that it was cancelled, for that long. Of
        any job that is dead: that it failed, and why. ``None`` for a job that is still to be done, for one that is gone
        and kept nothing, and when its time is over. Raises ``NotSupportedError`` where the engine keeps none.
        """
        ...

    def wait_result(
        self, job_id: int, timeout: Duration | None = None, *, poll_interval: Duration = 5
    ) -> Result | None:
        """Return what the queue's job has come to, as ``result`` does, as soon as that is committed in any process (Z-17).

        ``None`` after ``timeout`` (``None``: never), and at once where there is no such job and no result. It looks every
        ``poll_interval`` seconds, if nothing wakes it before. Raises ``ValidationError`` for a job that keeps no result,
        ``StoreClosedError`` once the store is closed, and ``TransactionError`` on a queue that is bound to a transaction.
        """
        ...

    def jobs(self, state: State | str | None = None, after: int | None = None, limit: int = 100) -> list[Job]:
        """Return a page of the queue's jobs by id, those with an id over ``after`` (Q-6).

        ``state``: only those in it, a ``State`` or its text. ``limit`` is at most 10,000; 0 or less is ``[]``. Raises
        ``ValidationError`` for anything else.
        """
        ...

    def stats(self) -> QueueStats:
        """Count the queue's rows as they stand, swept or not (Q-6)."""
        ...

    def sweep_expired(self) -> int:
        """Move every job past its expiry, or lapsed with its budget spent, to the dead table; return how many (Q-5).

        Then dead jobs past their own retention and results past their time are deleted. In bounded batches, each a
        transaction of its own; within a transaction, one batch (Z-8).
        """
        ...

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until a claim is worth trying, and say so; ``False`` after ``timeout`` seconds (``None``: never) (W-4).

        It is woken by whatever makes a job ready or due sooner, in any process, and by the next due time or lapsing
        claim, and looks every 5 seconds in any case. ``True`` promises nothing: another may be quicker. Raises
        ``TransactionError`` on a queue that is bound to a transaction.
        """
        ...

    def consume(
        self,
        worker_id: str,
        *,
        batch: int = 1,
        poll_interval: Duration = 5,
        stop: threading.Event | None = None,
    ) -> Consumer:
        """Return an iterator that claims jobs as they become claimable, and waits meanwhile (W-4).

        It claims ``batch`` at a time at most, and gives them one by one; never acks, and never heartbeats: a batch is to
        be worked off within the visibility timeout. It looks every ``poll_interval`` seconds, if nothing wakes it
        before. It ends when ``stop`` is set, within a tenth of a second, or when it is closed, and then releases what
        it has not yet given. While the database can't be reached it waits, with jittered backoff. Raises
        ``TransactionError`` on a queue that is bound to a transaction.
        """
        ...

    def retry_dead(self, job_id: int) -> bool:
        """Make a dead job pending again under its id: no attempts, due now, no expiry, its other stamps kept (Q-6).

        Once, however many ask.
        """
        ...

    def purge(self, state: State | str) -> int:
        """Delete the queue's jobs in the state, and return how many (Q-6); within a transaction, one batch (Z-8).

        A job that was alive and keeps its result leaves a tombstone, as in ``cancel`` (Z-17).

        ``state`` is a ``State`` or its text, without a default; ``ValidationError`` for anything else.
        """
        ...

    def __enter__(self) -> Self:
        """Return the handle itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the consumers; claims stay, and the handle remains usable (Z-2)."""
        ...


class Consumer(Protocol):
    """Handles as jobs become claimable: an iterator, and a context manager that closes it (W-4)."""

    def __iter__(self) -> Self:
        """Return itself."""
        ...

    def __next__(self) -> JobHandle:
        """Return the next claim, waiting for it; ``StopIteration`` once it is closed or told to stop.

        Raises ``StoreClosedError`` once the store is closed, also while it waits.
        """
        ...

    def close(self) -> None:
        """End it, and release what was claimed and not yet given; from any thread."""
        ...

    def __enter__(self) -> Self:
        """Return itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        ...


class Listener(Protocol):
    """What is notified on some channels, from its making on: an iterator, and a context manager that closes it (W-2)."""

    def get(self, timeout: Duration | None = None) -> Notification | None:
        """Return the next notification, waiting for it for ``timeout`` seconds (``None``: for ever), or ``None``.

        One with ``gap=True`` says that some may have been lost before it: the connection was, or this reader was too
        slow (W-2, W-3). Once closed, ``None``. Raises ``StoreClosedError`` once the store is closed, also while it waits.
        """
        ...

    def __iter__(self) -> Self:
        """Return itself."""
        ...

    def __next__(self) -> Notification:
        """Return the next notification, waiting for it; ``StopIteration`` once it is closed."""
        ...

    def close(self) -> None:
        """End it; from any thread."""
        ...

    def __enter__(self) -> Self:
        """Return itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        ...


class Transaction(Protocol):
    """A transaction of the store: it commits when the block ends well, and rolls back on an exception (T-1).

    It belongs to the thread that opened it. Nothing of it is seen by anyone before the commit, and nothing at all
    after a rollback, a savepoint's included (T-2). Once over, or aborted by the database, it refuses further use with
    ``TransactionError`` (T-5).
    """

    def queue(
        self,
        name: str,
        options: QueueOptions | None = None,
        *,
        codec: str | Codec | None = None,
        **fields: Unpack[QueueFields],
    ) -> Queue:
        """Return the same handle as ``store.queue``, bound to this transaction (T-1); raises what that does."""
        ...

    def bind(self, handle: JobHandle) -> JobHandle:
        """Return the handle within this transaction; a refused operation still returns ``False`` there (T-4).

        Raises ``ValidationError`` for another store's handle, and ``TransactionError`` where the transaction can't be
        used.
        """
        ...

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None = None) -> Any:
        """Run the application's own statement beside the queue's, and return the driver's cursor (T-1).

        Placeholders, cursor and errors are the driver's own, and the cursor is to be read before the transaction ends.
        A failed statement aborts a PostgreSQL transaction and
        not an SQLite one: portable code wraps it in ``tx.transaction()``.
        """
        ...

    def notify(self, channel: str, payload: str = "") -> None:
        """Send to the channel's listeners when this is committed, and never if it isn't (T-2, W-1)."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a savepoint: what is done inside is kept or undone by itself (T-5)."""
        ...

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back on an exception, which is never masked (T-1)."""
        ...


class Store(Protocol):
    """An open store: safe to share by threads, and surviving ``fork()`` (S-4)."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do: one frozen, declared object (S-7)."""
        ...

    def queue(
        self,
        name: str,
        options: QueueOptions | None = None,
        *,
        codec: str | Codec | None = None,
        **fields: Unpack[QueueFields],
    ) -> Queue:
        """Return a handle of the queue, with options given as ``QueueOptions`` or as its fields (O-1); no I/O (N-3).

        ``codec``: by name or by itself, JSON by default. Raises ``ValidationError`` for a name, option or codec that
        can't be (N-1, N-2, O-4).
        """
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a transaction to enter; a second one in the same thread is refused with ``TransactionError`` (T-5)."""
        ...

    def join(self, connection: object, *, wake: Literal["poll", "notify"] = "poll") -> Transaction:
        """Return the same over a connection that the application has open already, and with what is open on it (T-3).

        ``connection`` is the driver's own, SQLAlchemy's ``Connection``, ``Session`` or ``scoped_session``, or Django's
        ``connection`` or ``connections[alias]``. What is enqueued stands or falls with the application's transaction;
        the library never commits, rolls back, closes or reconfigures the connection. With no transaction open its own
        rule holds: in auto-commit mode each operation is a transaction by itself, else it opens one for the application to
        commit.

        Those who wait for jobs are woken after the application's commit where SQLAlchemy's session or Django tells of
        it. Of the driver's own connection they learn when they look, at the latest after 5 seconds; on SQLite by the
        file itself. ``wake="notify"`` has PostgreSQL tell them with the commit, at the price of a lock that commits
        with it take turns for (Z-14).

        What is returned may be used at once, by this thread. It may be entered, too: leaving ends this use of the
        connection and nothing else, and inside the store's auto-commit calls are refused while a transaction is open
        (T-5). Raises ``ValidationError`` for anything else than such a connection to the store's own database,
        ``TransactionError`` for one whose transaction was aborted, ``EngineBusyError`` for one in the middle of a
        statement, and ``NotSupportedError`` where the engine can't.
        """
        ...

    def notify(self, channel: str, payload: str = "") -> None:
        """Send to everybody who listens to the channel, in any process (W-1).

        ``payload`` is a text of at most 7,000 bytes of UTF-8 without NUL. Raises ``ValidationError`` for anything else,
        and ``NotSupportedError`` where the engine can't.
        """
        ...

    def listen(self, *channels: str) -> Listener:
        """Return a listener, which gets whatever is committed from now on, in the order of the commits (W-1).

        Equal notifications are not merged, and nothing is replayed for those who come later. Raises
        ``ValidationError``, ``NotSupportedError`` where the engine can't, and an ``EngineError`` where the database
        can't be reached now.
        """
        ...

    def queues(self) -> list[str]:
        """Return the names of the queues that have rows, sorted (Q-8)."""
        ...

    def get_job(self, job_id: int) -> Job | None:
        """Return a job of any queue, dead ones included, or ``None`` (Q-8)."""
        ...

    def result(self, job_id: int) -> Result | None:
        """Return what a job of any queue has come to, as ``queue.result`` does (Z-17)."""
        ...

    def health(self) -> Health:
        """Say what a check or a dashboard needs to know (Q-8)."""
        ...

    def close(self) -> None:
        """Close; a second time does nothing. Whatever was made from the store refuses use from then on (S-3)."""
        ...

    def __enter__(self) -> Self:
        """Return the store itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close (S-3)."""
        ...
