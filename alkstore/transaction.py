"""The store's own transactions (clauses T-1, T-5)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar, Self

from alkstore.deeds import do_all
from alkstore.engine import EngineTransaction, OpenConnection
from alkstore.errors import NotSupportedError, OutcomeUnknownError, TransactionError
from alkstore.frames import Root

if TYPE_CHECKING:
    from alkstore.store import Store


class Transaction(Root):
    """A transaction of the store: it commits when the block ends well, and rolls back on an exception."""

    why_unusable: ClassVar[str] = "the database has ended or aborted the transaction: leave it, and begin anew"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._inner: EngineTransaction | None = None
        self._ended = False
        """The engine's has ended."""
        self._before: Root | None = None

    def any_connection(self) -> OpenConnection:
        """Return the transaction underneath."""
        if self._inner is None:
            raise TransactionError("the transaction has not begun: enter it with 'with'")
        return self._inner

    def __enter__(self) -> Self:
        """Begin; what a signal's handler raises meanwhile leaves nothing open, as nobody would end it."""
        again = self._entered
        try:
            return super().__enter__()
        except BaseException:
            if not again:
                self._end(well=False)
            raise

    def _begin(self) -> None:
        self._store.check_open()
        if not self._store.capabilities.transactions:
            raise NotSupportedError("this engine does not declare the capability 'transactions'")
        if self._store.open_transaction() is not None:
            raise TransactionError(
                "this thread has a transaction of the store open already: tx.transaction() makes a savepoint within it, and "
                "tx.bind(handle) brings a handle into it"
            )
        self.belong_here()
        self._inner = self._store.engine.begin()
        self._before = self._store.set_open_transaction(self)

    def _end(self, *, well: bool) -> None:
        inner = self._inner
        if inner is None or self._over:
            return
        self._undone = True  # until the commit is known to have come through
        try:
            if well:
                self.connection()
                self._commit(inner)
        finally:
            self._over = True
            self.abandon()
        if well:  # it is committed: nothing else comes here; and the thread may use the store again
            do_all(self.take_deeds())

    def _commit(self, inner: EngineTransaction) -> None:
        try:
            inner.commit()
        except OutcomeUnknownError:
            self._ring()  # it may have come through
            raise
        self._undone = False
        self._ended = True
        self._ring()

    def abandon(self) -> None:
        """Roll back, unless it has ended; and be out of this thread's way."""
        inner = self._inner
        if inner is None or not self.is_of_this_process():
            return
        self._over = True
        if not self._ended:
            self._undone = True
            inner.rollback()
            self._ended = True
        self.open_frames.clear()
        if self.of_this_thread:
            self._store.forget_transaction(self, self._before)  # a joined connection, say, with nothing open until now
        self.statement = None

    def _ring(self) -> None:
        rings = self.take_rings()
        if rings:
            self._store.wakes.ring(rings.queues, notified=rings.notified)

    def __del__(self) -> None:
        # A thread that ends, or a generator that is dropped, inside the block: what is open keeps others waiting.
        if getattr(self, "_inner", None) is not None and not self._ended and self.is_of_this_process():
            try:
                warnings.warn("a transaction was dropped while open, and is rolled back", ResourceWarning, stacklevel=2)
            finally:  # where warnings are errors, too
                self.abandon()
