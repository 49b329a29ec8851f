"""Operations over a connection that the application has open (clause T-3)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

from alkstore.adapters import Adapted
from alkstore.deeds import Deed
from alkstore.engine import JoinedConnection, Joining, OpenConnection
from alkstore.errors import AlkstoreError, TransactionError
from alkstore.frames import Frame, Root
from alkstore.leaving import Leaving
from alkstore.session import AutoSession, GoneSession, Session, TransactionSession

if TYPE_CHECKING:
    from alkstore.handle import Claim
    from alkstore.store import Store

Wake: TypeAlias = Literal["poll", "notify"]
"""How those who wait learn of a commit of the application's, where nothing tells the library of it (Z-14)."""


class Joined(Root):
    """The application's connection: what is open on it is the application's to end.

    It can be used as soon as it is there. Entering it says for how long this thread works on it, so that calls of the
    store which would run outside are refused (T-5); leaving it ends this use, and neither commits nor rolls back.
    """

    why_unusable: ClassVar[str] = (
        "the application's connection is closed, or the database has aborted its transaction: end that, and begin anew"
    )

    def __init__(self, store: Store, engine: Joining, connection: object, wake: Wake) -> None:
        """Look at the connection; raises what ``Joining.join`` does."""
        super().__init__(store)
        self._wake: Wake = wake
        self._engine = engine
        self._adapted = Adapted(connection)
        self._driver: object = None
        self._inner: JoinedConnection | None = None
        self._before: Root | None = None
        self.belong_here()
        self._entered = True
        self._inside = False
        self._look()

    def _look(self) -> JoinedConnection:
        """Return what the engine has made of the driver's connection, which may be another one than before."""
        driver = self._adapted.driver()
        inner = self._inner
        if inner is None or driver is not self._driver:
            inner = self._engine.join(driver)
            self._driver, self._inner = driver, inner
        return inner

    @property
    def driver(self) -> object:
        """The driver's connection, as it was last seen."""
        return self._driver

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open on the connection now, which may be another one than before."""
        if not self._adapted.begun:
            return False
        try:
            inner = self._look()
        except AlkstoreError:
            return False  # it can't be used, so that nothing can be meant to run within it
        return inner.usable and inner.in_transaction

    @property
    def has_ended(self) -> bool:
        """Whether no transaction is open on the connection, for certain; asked in its own thread."""
        if not self._adapted.begun:
            return True
        try:
            return not self._look().in_transaction
        except AlkstoreError:
            return False  # the framework says what stands in the way as soon as it is used

    @property
    def had_ended(self) -> bool:
        """The same, for other threads: of the driver's connection as it was last seen, and without touching the framework's."""
        return self._inner is None or not self._inner.in_transaction

    def again(self) -> Joined:
        """Return the same connection, joined anew by this thread."""
        return Joined(self._store, self._engine, self._adapted.connection, self._wake)

    def keeps_settled(self, claim: Claim, frame: Frame) -> bool:
        """Ask whether the claim is gone: the application may have rolled back without a word.

        Within an open transaction, that is asked: it sees what it did itself. After it, everybody sees what it did.
        """
        if frame.undone:
            return False
        open_here = self.of_this_thread and not self.has_ended
        try:
            executor = self._look().executor if open_here else self._store.auto_executor()
            return executor.recall(claim.queue, claim.ref) is None
        except TransactionError:
            return False  # the transaction has failed, and what was done in it with it

    def home_of(self, claim: Claim, frame: Frame) -> JoinedClaim | AutoSession:
        """Return where a claim belongs: with the connection, until the application has committed it."""
        return JoinedClaim(claim, self, frame) if self.keeps else self._store.auto_session

    @property
    def keeps(self) -> bool:
        """Whether what is done now is the application's to commit."""
        inner = self._inner
        return inner is None or not inner.auto_commits

    def any_connection(self) -> OpenConnection:
        """Return the application's connection."""
        return self._look()

    def own_connection(self) -> OpenConnection:
        """Return it; raise ``TransactionError`` where it can't be used here and now."""
        inner = super().own_connection()
        current = self._store.open_transaction()
        if current is not None and not (isinstance(current, Joined) and current.driver is self._driver):
            raise TransactionError(
                "this thread has another transaction of the store open, and the call would run outside of it: use that "
                "one, or the joined connection before or after it"
            )
        return inner

    def note_ring(self, queue: str | None, count: int) -> None:
        """Ring at once what is committed already; for the rest ask the framework, or let the database carry it (Z-14).

        With neither, those who wait find it when they look.
        """
        store = self._store

        def ring() -> None:
            store.wakes.ring({} if queue is None else {queue: count}, notified=queue is None)

        if not self._at_commit(ring) and self._wake == "notify" and queue is not None:
            self._look().ring(queue, count)

    def after_commit(self, deed: Deed) -> None:
        """Do it at once where it is about what is committed already; for the rest ask the framework, and else let it be."""
        self._at_commit(deed)

    def _at_commit(self, deed: Deed) -> bool:
        """Have it done with the commit, which may have been; ``False`` where nobody can be asked to."""
        frame = self._savepoint()

        def unless_undone() -> None:
            if frame is None or not frame.undone:
                deed()

        if not self.keeps:
            unless_undone()
            return True
        return self._adapted.on_commit(unless_undone)

    @contextmanager
    def all_or_none(self) -> Generator[Frame]:
        """Within an open transaction a savepoint; in auto-commit mode a transaction of its own."""
        self.connection()
        with self._look().atomic():
            yield self

    def __enter__(self) -> Self:
        """Say that this thread works on the connection from now on."""
        self.connection()
        if self._inside:
            raise TransactionError("a joined connection is entered once: join it again")
        self._inside = True
        self._before = self._store.set_open_transaction(self)
        return self

    @property
    def entered(self) -> bool:
        """Whether a block of it has begun: it can be used without."""
        return self._inside

    def _leave(
        self, kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End this use of the connection; what is open on it stays open."""
        self._end(well=kind is None)

    if not TYPE_CHECKING:
        __exit__ = Leaving(_leave)

    def _begin(self) -> None:
        """There is nothing to begin: the connection is open."""

    def _end(self, *, well: bool) -> None:  # noqa: ARG002 - how the block went is the application's to judge
        if not self._over:
            self._over = True
            self.abandon()

    def abandon(self) -> None:
        """Be out of this thread's way: what is open is the application's."""
        self._over = True
        if self.of_this_thread:
            self._store.forget_transaction(self, self._before)
        self.statement = None


class JoinedClaim:
    """With the application's transaction until the claim is committed, each operation by itself afterwards (Z-4).

    The application ends its transaction without a word to the library, and may have begun another since. So the database is
    asked: a claim that the store's own connections see is committed; one that only the application's sees is of the
    transaction that is open there; and one that nobody sees is no claim any more.
    """

    __slots__ = ("_claim", "_frame", "_gone", "_joined", "_store")

    def __init__(self, claim: Claim, joined: Joined, frame: Frame) -> None:
        self._store = joined.store
        self._claim = claim
        self._joined: Joined | None = joined
        self._frame = frame
        self._gone: GoneSession | None = None

    @property
    def store(self) -> Store:
        """The store that operations run in."""
        return self._store

    def now(self) -> Session:
        """Return the session of the application's transaction, or the store's own once the claim is committed."""
        joined = self._joined
        if joined is None:
            return self._gone or self._store.auto_session
        if self._is_refused_here():
            return self._store.auto_session
        mine = joined.of_this_thread
        if (joined.has_ended if mine else joined.had_ended) or self._is_committed():
            self._joined = None
            return self._store.auto_session
        living = self._frame.living
        if living is None and mine:
            living = joined.again()  # its block was left, which ends nothing
        if living is None:
            raise TransactionError(
                "the claim is not committed, and the transaction belongs to the thread that began it"
            )
        if living.executor().recall(self._claim.queue, self._claim.ref) is None:
            # Nobody sees it any more. To be told so by the database is no business for another transaction of the
            # application's, nor, on SQLite, for one of the store's own beside it.
            self._joined, self._gone = None, GoneSession(self._store)
            return self._gone
        return TransactionSession(living)

    def _is_refused_here(self) -> bool:
        """Whether this thread has a transaction of the store's own open, beside which nothing is done (T-5), or asked."""
        current = self._store.open_transaction()
        return current is not None and not isinstance(current, Joined)

    def _is_committed(self) -> bool:
        return self._store.auto_executor().recall(self._claim.queue, self._claim.ref) is not None
