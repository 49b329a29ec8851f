"""The store's own transactions and their savepoints (clauses T-1, T-2, T-4, T-5)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from alkstore import protocols
from alkstore.codec import Codec
from alkstore.engine import EngineTransaction, Executor
from alkstore.errors import AlkstoreError, NotSupportedError, TransactionError, ValidationError
from alkstore.handle import JobHandle
from alkstore.options import QueueFields, QueueOptions
from alkstore.queue import Queue
from alkstore.session import TransactionSession

if TYPE_CHECKING:
    from alkstore.store import Store

_LOG: Final = logging.getLogger("alkstore")


class Transaction(protocols.Transaction):
    """A transaction of the store, or, with a ``parent``, a savepoint within one."""

    def __init__(self, store: Store, parent: Transaction | None = None) -> None:
        self._store = store
        self._parent = parent
        self._root: Transaction = self if parent is None else parent._root
        self._open_frames: list[Transaction] = []  # of the root: the transaction and its savepoints, innermost last
        self._savepoints = 0  # of the root: how many names it has given out
        self._savepoint = ""
        self._engine_transaction: EngineTransaction | None = None
        self._entered = False
        self._over = False
        self._undone = False
        self._thread = 0
        self._process = 0
        self._session = TransactionSession(self)

    # --- what the front's other parts ask ------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store whose transaction this is."""
        return self._store

    @property
    def over(self) -> bool:
        """Whether it was committed or rolled back, itself or with what it lies in."""
        return self._over or (self._parent is not None and self._parent.over)

    @property
    def undone(self) -> bool:
        """Whether what was done in it is not known to last: rolled back, or cut off at the commit."""
        return self._undone or (self._parent is not None and self._parent.undone)

    @property
    def innermost(self) -> Transaction:
        """The innermost savepoint that is open now, or the transaction itself."""
        frames = self._root._open_frames
        return frames[-1] if frames else self

    @property
    def of_this_thread(self) -> bool:
        """Whether this thread, in this process, is the one it belongs to."""
        return self._root._thread == threading.get_ident() and self._root._process == os.getpid()

    def executor(self) -> Executor:
        """Return the operations within it; ``StoreClosedError`` or ``TransactionError`` where it can't be used."""
        return self._usable().executor

    def _usable(self) -> EngineTransaction:
        self._store.check_open()
        inner = self._root._engine_transaction
        if inner is None or not self._entered:
            raise TransactionError("the transaction has not begun: enter it with 'with'")
        if self.over:
            raise TransactionError("the transaction is over")
        if self._root._process != os.getpid():
            raise TransactionError("the transaction was begun before a fork, and belongs to the parent process")
        if self._root._thread != threading.get_ident():
            raise TransactionError("the transaction belongs to the thread that began it")
        if not inner.usable:
            raise TransactionError("the database has ended or aborted the transaction: leave it, and begin anew")
        return inner

    # --- for users -----------------------------------------------------------------------------------------------

    def queue(
        self,
        name: str,
        options: QueueOptions | None = None,
        *,
        codec: str | Codec | None = None,
        **fields: Unpack[QueueFields],
    ) -> Queue:
        """Return the queue's handle, bound to this transaction."""
        self._store.check_open()
        return Queue.make(self._session, name, options, codec, fields)

    def bind(self, handle: protocols.JobHandle) -> JobHandle:
        """Return the handle within this transaction."""
        self._store.check_open()
        if not isinstance(handle, JobHandle):
            raise ValidationError(f"handle must be a job handle of this store, not {type(handle).__name__}")
        bound = handle.within(self._session)
        self._usable()
        return bound

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None = None) -> Any:
        """Run the application's own statement, and return the driver's cursor."""
        self._store.check_open()
        if not self._store.capabilities.sql:
            raise NotSupportedError("this engine does not declare the capability 'sql': tx.execute can't run")
        return self._usable().execute(sql, params)

    def transaction(self) -> Transaction:
        """Return a savepoint to enter."""
        self._store.check_open()
        return Transaction(self._store, self)

    def __enter__(self) -> Self:
        """Begin, or set the savepoint."""
        if self._entered:
            raise TransactionError("a transaction is entered once: ask for another")
        if self._parent is None:
            self._begin()
        else:
            self._set_savepoint(self._parent)
        self._entered = True
        self._root._open_frames.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit or keep; on an exception roll back, without masking it."""
        if not self.of_this_thread:
            if kind is None:
                self._usable()  # says which of the two is wrong
            return
        leaving = self._end_savepoint if self._parent is not None else self._end
        leaving(well=kind is None)

    # --- the transaction -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._store.check_open()
        if not self._store.capabilities.transactions:
            raise NotSupportedError("this engine does not declare the capability 'transactions'")
        if self._store.open_transaction() is not None:
            raise TransactionError(
                "this thread has a transaction of the store open already: tx.transaction() makes a savepoint within it"
            )
        self._engine_transaction = self._store.engine.begin()
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._store.set_open_transaction(self)

    def _end(self, *, well: bool) -> None:
        inner = self._engine_transaction
        if inner is None or self._over:
            return
        self._undone = True  # until the commit is known to have come through
        try:
            if not well:
                inner.rollback()
                return
            try:
                self._usable()
            except AlkstoreError:
                inner.rollback()
                raise
            inner.commit()
            self._undone = False
        finally:
            self._over = True
            self._open_frames.clear()
            self._store.set_open_transaction(None)

    # --- the savepoint -------------------------------------------------------------------------------------------

    def _set_savepoint(self, parent: Transaction) -> None:
        inner = parent._usable()
        self._root._savepoints += 1
        self._savepoint = f"alkstore_{self._root._savepoints}"
        inner.savepoint(self._savepoint)

    def _end_savepoint(self, *, well: bool) -> None:
        inner = self._root._engine_transaction
        frames = self._root._open_frames
        if inner is None or self.over or self not in frames:
            return
        self._undone = True
        del frames[frames.index(self) :]
        try:
            if well:
                self._keep(inner)
                self._undone = False
            else:
                self._undo(inner)
        finally:
            self._over = True

    def _keep(self, inner: EngineTransaction) -> None:
        try:
            self._usable()
        except AlkstoreError:
            self._undo(inner)
            raise
        inner.release_savepoint(self._savepoint)

    def _undo(self, inner: EngineTransaction) -> None:
        try:
            inner.rollback_to_savepoint(self._savepoint)
        except AlkstoreError:
            # The exception on its way up says why; the transaction itself is found unusable at its next use or end.
            _LOG.warning("a savepoint could not be rolled back", exc_info=True)
