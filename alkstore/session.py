"""Where a handle's operations run: each by itself, or within a transaction (clauses S-3, T-4, T-5, Z-4).

Queues and job handles are the same objects in and out of a transaction; what differs is the session that they ask for
an executor. The order is that of Z-1: a method asks the store whether it is open, looks at its
arguments, and then asks the session for the executor, which says whether this thread may run here now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from alkstore.deeds import Deed
from alkstore.engine import Executor
from alkstore.errors import TransactionError
from alkstore.records import KeptBatch

if TYPE_CHECKING:
    from alkstore.frames import Frame
    from alkstore.handle import Claim
    from alkstore.store import Store


class Home(Protocol):
    """Where the operations of one claim run, which may be another session each time."""

    @property
    def store(self) -> Store:
        """The store that they run in."""
        ...

    def now(self) -> Session:
        """Return the session of the next operation; may ask the database, and raise what that does."""
        ...


class Session(Home, Protocol):
    """Where operations run."""

    @property
    def frame(self) -> Frame | None:
        """The innermost transaction or savepoint that a change made now would be undone with; ``None``: none."""
        ...

    def executor(self) -> Executor:
        """Return the operations, or raise ``StoreClosedError`` or ``TransactionError``."""
        ...

    def for_claim(self, claim: Claim) -> Home:
        """Return where the handle of a claim belongs that was made here just now."""
        ...

    def ring(self, queue: str, count: int) -> None:
        """Tell waiters, once it is committed, that so many jobs can be had; 0: that one may be due sooner (W-4)."""
        ...

    def after_commit(self, deed: Deed) -> None:
        """Have it done once what was done here until now is committed, and never where it is rolled back."""
        ...


class AutoSession:
    """Each operation is a transaction of its own."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        """The store that operations run in."""
        return self._store

    @property
    def frame(self) -> Frame | None:
        """``None``: what is done here is done."""
        return None

    def executor(self) -> Executor:
        """Return the auto-commit operations; raise ``TransactionError`` while this thread has a transaction open (T-5).

        SQLite would wait for itself and PostgreSQL would silently write outside of the transaction: the same error on
        both says what was meant.
        """
        if self._store.open_transaction() is not None:
            raise TransactionError(
                "this thread has a transaction of the store open, and the call would run outside of it: use "
                "tx.queue(name) or tx.bind(handle), or make the call before or after the transaction"
            )
        return self._store.auto_executor()

    def now(self) -> Session:
        """Return itself."""
        return self

    def for_claim(self, claim: Claim) -> Home:  # noqa: ARG002 - all are alike here
        """Return itself."""
        return self

    def ring(self, queue: str, count: int) -> None:
        """Tell at once: it is committed."""
        self._store.wakes.ring({queue: count})

    def after_commit(self, deed: Deed) -> None:
        """Do it at once: it is committed."""
        deed()


class TransactionSession:
    """Operations run within a transaction, and are refused once it is over (T-5)."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Frame) -> None:
        self._transaction = transaction

    @property
    def store(self) -> Store:
        """The store that operations run in."""
        return self._transaction.store

    @property
    def frame(self) -> Frame | None:
        """The innermost savepoint that is open now, or the transaction itself."""
        return self._transaction.root.innermost

    def executor(self) -> Executor:
        """Return the operations within the transaction; raise ``TransactionError`` where it can't be used."""
        return self._transaction.executor()

    def now(self) -> Session:
        """Return itself."""
        return self

    def for_claim(self, claim: Claim) -> Home:
        """Return what outlives the transaction: its claims are ordinary after the commit (Z-4)."""
        return self._transaction.root.home_of(claim, self._transaction)

    def ring(self, queue: str, count: int) -> None:
        """Tell after the commit."""
        self._transaction.root.note_ring(queue, count)

    def after_commit(self, deed: Deed) -> None:
        """Do it after the commit."""
        self._transaction.root.after_commit(deed)


class _Refusing:
    """The operations on a claim, all of them refused."""

    def _none(self, *_: object) -> None:
        """There is no such claim."""

    def _false(self, *_: object) -> bool:
        return False

    def _nothing(self, *_: object) -> list[int]:
        return []

    def extend(self, *_: object) -> dict[int, int]:
        """Extend nothing."""
        return {}

    def _no_batch(self, *_: object) -> KeptBatch:
        return KeptBatch([], [])

    recall = _none
    hold = conclude = _false
    ack = retry = bury = release = _nothing
    ack_keeping = conclude_keeping = _no_batch


class GoneSession:
    """Where a claim belongs that is known to be gone: every operation is refused, and nothing asked or locked for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        """The store that it was made in."""
        return self._store

    @property
    def frame(self) -> Frame | None:
        """``None``: nothing is changed."""
        return None

    def now(self) -> Session:
        """Return itself."""
        return self

    def executor(self) -> Executor:
        """Return the operations on a claim."""
        return cast(Executor, _Refusing())

    def for_claim(self, claim: Claim) -> Home:  # noqa: ARG002 - nothing is claimed here
        """Return itself."""
        return self

    def ring(self, queue: str, count: int) -> None:
        """Nothing has changed."""

    def after_commit(self, deed: Deed) -> None:
        """Do it at once: there is no commit to wait for."""
        deed()


class TransactionClaim:
    """Within the transaction of the claim while that lasts, each by itself afterwards (Z-4).

    After a rollback the claim's token is in no row, so every operation is refused by the same rule as a lost claim.
    """

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Frame) -> None:
        self._transaction = transaction

    @property
    def store(self) -> Store:
        """The store that operations run in."""
        return self._transaction.store

    def now(self) -> Session:
        """Return the session of the transaction, or the store's own once that is over."""
        living = self._transaction.living
        return self._transaction.store.auto_session if living is None else TransactionSession(living)
