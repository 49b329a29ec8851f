"""What transactions, their savepoints and joined connections have in common (clauses T-1, T-2, T-4, T-5).

Each is a *frame*: operations run within it, and what they did is undone with it. A *root* is a frame with a connection of
its own, or of the application's; savepoints lie within a root, one within the other.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack

from alkstore import protocols
from alkstore.codec import Codec
from alkstore.deeds import Deed
from alkstore.engine import Executor, OpenConnection
from alkstore.errors import (
    AlkstoreError,
    NotSupportedError,
    StoreClosedError,
    TransactionError,
    ValidationError,
)
from alkstore.handle import Claim, JobHandle
from alkstore.leaving import Leaving, Statement
from alkstore.listening import check_notification
from alkstore.options import QueueFields, QueueOptions
from alkstore.queue import Queue
from alkstore.session import Home, TransactionClaim, TransactionSession
from alkstore.wakes import Rings

if TYPE_CHECKING:
    from alkstore.store import Store

_LOG: Final = logging.getLogger("alkstore")


class Frame(protocols.Transaction):
    """Where operations run together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entered = False
        self._over = False
        self._undone = False
        self.statement: Statement | None = None
        """The ``with`` statement, if there is one, until all that it has open has ended."""

    # --- what the front's other parts ask ------------------------------------------------------------------------

    @property
    def _session(self) -> TransactionSession:
        # Made anew each time: kept, it would be a circle, and a transaction that a thread leaves behind would stay open
        # until the garbage collector comes by.
        return TransactionSession(self)

    @property
    def store(self) -> Store:
        """The store that it belongs to."""
        return self._store

    @property
    @abstractmethod
    def root(self) -> Root:
        """The frame that has the connection."""

    @property
    def entered(self) -> bool:
        """Whether a block of it has begun."""
        return self._entered

    @property
    def over(self) -> bool:
        """Whether it has ended, itself or with what it lies in."""
        return self._over

    @property
    def undone(self) -> bool:
        """Whether what was done in it is not known to last: rolled back, or cut off at the commit."""
        return self._undone

    @property
    def living(self) -> Frame | None:
        """Itself, or the nearest that it lies in and that hasn't ended; ``None`` where all have."""
        return None if self.over else self

    @property
    def keeps(self) -> bool:
        """Whether what is done in it now is kept or undone by something later: it isn't committed at once."""
        return True

    @property
    def of_this_thread(self) -> bool:
        """Whether this thread, in this process, is the one it belongs to."""
        return self.root.is_of_this_thread()

    def executor(self) -> Executor:
        """Return the operations within it; ``StoreClosedError`` or ``TransactionError`` where it can't be used."""
        return self.connection().executor

    def connection(self) -> OpenConnection:
        """Return the connection; ``StoreClosedError`` or ``TransactionError`` where it can't be used here and now."""
        self._store.check_open()
        if not self._entered:
            raise TransactionError("the transaction has not begun: enter it with 'with'")
        if self.over:
            raise TransactionError("the transaction is over")
        return self.root.own_connection()

    def all_or_none(self) -> AbstractContextManager[Frame]:
        """Return where several operations are done together or not at all, whoever catches what they raise."""
        return self.transaction()

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
        self.connection()
        return bound

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None = None) -> Any:
        """Run the application's own statement, and return the driver's cursor."""
        self._store.check_open()
        if not self._store.capabilities.sql:
            raise NotSupportedError("this engine does not declare the capability 'sql': tx.execute can't run")
        return self.connection().execute(sql, params)

    def notify(self, channel: str, payload: str = "") -> None:
        """Send to the channel's listeners at the commit."""
        self._store.check_open()
        name, text = check_notification(channel, payload)
        self._store.check_notifies()
        self.executor().notify(name, text)
        self.root.note_ring(None, 0)

    def transaction(self) -> Savepoint:
        """Return a savepoint to enter."""
        self._store.check_open()
        return Savepoint(self)

    def __enter__(self) -> Self:
        """Begin."""
        if self._entered:
            raise TransactionError("a transaction is entered once: ask for another")
        self._begin()
        self._entered = True
        if self.root is not self:
            self.root.open_frames.append(self)
        return self

    def _leave(
        self, kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit or keep; on an exception roll back, without masking it."""
        if self.of_this_thread:
            self._end(well=kind is None)
            return
        if self.root.is_of_this_process():
            # Left in another thread, as a generator may be that is closed there: nobody else will end it, and what is
            # open keeps others waiting.
            self._end(well=False)
            if kind is None:
                raise TransactionError("the transaction was left in another thread than its own, and is rolled back")
        elif kind is None:
            self.connection()  # says what is wrong

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
        ) -> None:
            """Commit or keep; on an exception roll back, without masking it."""

    else:
        __exit__ = Leaving(_leave)

    @abstractmethod
    def abandon(self) -> None:
        """Undo what the end left to do, where a signal's handler raised in the middle of it; without a word."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin it, or raise."""

    @abstractmethod
    def _end(self, *, well: bool) -> None:
        """End it, well or with an exception on its way up."""


class Root(Frame):
    """A frame that has a connection, for one thread."""

    why_unusable: ClassVar[str]
    """What to say where the database wouldn't take a statement."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.open_frames: list[Frame] = []
        """Its savepoints that are open, innermost last."""
        # With the savepoint that they are undone with; ``None`` is itself, which would make a circle.
        self._settled: list[tuple[str, int, Frame | None]] = []
        self._rings: list[tuple[str | None, int, Frame | None]] = []
        self._deeds: list[tuple[Deed, Frame | None]] = []
        self._savepoints = 0
        self._thread = 0
        self._process = 0

    @property
    def root(self) -> Root:
        """Itself."""
        return self

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open in it now."""
        return True

    @property
    def innermost(self) -> Frame:
        """The innermost savepoint that is open now, or itself."""
        return self.open_frames[-1] if self.open_frames else self

    def belong_here(self) -> None:
        """Belong to this thread from now on."""
        self._thread = threading.get_ident()
        self._process = os.getpid()

    def is_of_this_thread(self) -> bool:
        """Say whether this thread, in this process, is the one it belongs to."""
        return self._thread == threading.get_ident() and self.is_of_this_process()

    def is_of_this_process(self) -> bool:
        """Say whether this process is the one it belongs to: it isn't in a child of a fork."""
        return self._process == os.getpid()

    def note_settled(self, queue: str, job_id: int) -> None:
        """Note that a job's claim was acked, retried, failed or released here, by whichever handle or id."""
        self._settled.append((queue, job_id, self._savepoint()))

    def has_settled(self, queue: str, job_id: int) -> bool:
        """Say whether a job's claim was settled here, and no savepoint has undone it."""
        return any(
            (queue, job_id) == (name, known) and not (frame or self).undone for name, known, frame in self._settled
        )

    def keeps_settled(self, claim: Claim, frame: Frame) -> bool:  # noqa: ARG002 - a joined connection's asks for it
        """Say whether it stands that a claim was settled here, in the savepoint given or in itself."""
        return not frame.undone

    def _savepoint(self) -> Frame | None:
        return self.open_frames[-1] if self.open_frames else None

    def note_ring(self, queue: str | None, count: int) -> None:
        """Note what to ring after the commit, unless it is undone by then; no queue: something was notified."""
        frame = self._savepoint()
        if self._rings and self._rings[-1][0] == queue and self._rings[-1][2] is frame:
            count += self._rings.pop()[1]  # of a loop that enqueues, one entry is kept
        self._rings.append((queue, count, frame))

    def after_commit(self, deed: Deed) -> None:
        """Have it done once what is done here is committed and this thread is free for other work.

        Never where it isn't, nor where the savepoint is rolled back that is open now: what it is about is undone with that.
        """
        self._deeds.append((deed, self._savepoint()))

    def take_deeds(self) -> list[Deed]:
        """Return what is to be done, by a frame that is known to be kept, and forget it."""
        deeds = [deed for deed, frame in self._deeds if frame is None or not frame.undone]
        self._deeds.clear()
        return deeds

    def take_rings(self) -> Rings:
        """Return what is to be rung, by a frame that is known to be kept, and forget it."""
        rings = Rings()
        for queue, count, frame in self._rings:
            if frame is not None and frame.undone:
                continue
            if queue is None:
                rings.notified = True
            else:
                rings.add(queue, count)
        self._rings.clear()
        return rings

    def home_of(self, claim: Claim, frame: Frame) -> Home:  # noqa: ARG002 - a joined connection's asks for it
        """Return where a claim belongs that was made in it, or in the savepoint given."""
        return TransactionClaim(frame)

    def savepoint_name(self) -> str:
        """Return a name that no savepoint here had before."""
        self._savepoints += 1
        return f"alkstore_{self._savepoints}"

    def own_connection(self) -> OpenConnection:
        """Return the connection; raise ``TransactionError`` where it can't be used here and now."""
        if self._process != os.getpid():
            raise TransactionError("the transaction was begun before a fork, and belongs to the parent process")
        if self._thread != threading.get_ident():
            raise TransactionError("the transaction belongs to the thread that began it")
        inner = self.any_connection()
        if not inner.usable:
            raise TransactionError(self.why_unusable)
        return inner

    @abstractmethod
    def any_connection(self) -> OpenConnection:
        """Return the connection, usable or not."""


class Savepoint(Frame):
    """What is done inside is kept or undone by itself."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent.store)
        self._parent = parent
        self._name = ""
        self._is_set = False

    @property
    def root(self) -> Root:
        """The frame that has the connection."""
        return self._parent.root

    @property
    def over(self) -> bool:
        """Whether it has ended, itself or with what it lies in."""
        return self._over or self._parent.over

    @property
    def undone(self) -> bool:
        """Whether what was done in it was undone, by itself or with what it lies in."""
        return self._undone or self._parent.undone

    @property
    def living(self) -> Frame | None:
        """Itself, or the nearest that it lies in and that hasn't ended; ``None`` where all have."""
        return self._parent.living if self.over else self

    def _begin(self) -> None:
        inner = self._parent.connection()
        if not self._parent.keeps:
            raise TransactionError(
                "there is no transaction to set a savepoint in: the connection is in auto-commit mode, and none is open"
            )
        self._name = self.root.savepoint_name()
        inner.savepoint(self._name)
        self._is_set = True

    def _end(self, *, well: bool) -> None:
        frames = self.root.open_frames
        if self.over or self not in frames:
            return
        self._undone = True  # until it is known to be kept
        del frames[frames.index(self) :]
        try:
            if well:
                self._keep()
                self._undone = False
            else:
                self._undo()
            self.statement = None
        finally:
            self._over = True

    def _keep(self) -> None:
        try:
            inner = self.connection()
        except AlkstoreError:
            self._undo()
            raise
        inner.release_savepoint(self._name)
        self._is_set = False

    def abandon(self) -> None:
        """Undo it, unless that is done, or it was kept."""
        frames, root = self.root.open_frames, self.root
        if self._is_set and not self._parent.over and root.is_of_this_thread():
            self._undone = self._over = True
            if self in frames:
                del frames[frames.index(self) :]
            self._undo()

    def _undo(self) -> None:
        self._is_set = False
        try:
            self.root.any_connection().rollback_to_savepoint(self._name)
        except StoreClosedError:
            pass  # everything was rolled back by that
        except AlkstoreError:
            # The exception on its way up says why; the transaction itself is found unusable at its next use or end.
            _LOG.warning("a savepoint could not be rolled back", exc_info=True)
