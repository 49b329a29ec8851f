"""Whose connection it is, and how to get at the driver's: SQLAlchemy and Django (clause T-3).

A connection is recognised by the module and name of its classes, so that nothing is imported that the application has
not imported already. Each adapter gives the driver's own connection *anew for every operation*: after a commit,
SQLAlchemy's session may be on another connection, and the one it had before may be somebody else's by then.

What the framework itself refuses (a closed connection, a block that is over) is an error of the library's own, with the
framework's as the cause (clause S-5).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar, cast

from alkstore.deeds import Deed, do_all
from alkstore.errors import (
    AlkstoreError,
    EngineBusyError,
    EngineUnavailableError,
    TransactionError,
    ValidationError,
)

T = TypeVar("T")


class Adapter(NamedTuple):
    """How a framework's connection is got at; each is given the framework's own object."""

    driver: Callable[[Any], object]
    """Return the driver's connection, ready for an operation."""
    begun: Callable[[Any], bool] = lambda _: True
    """Say whether that can be had without beginning anything; if not, no transaction is open."""
    on_commit: Callable[[Any, Deed], bool] = lambda _, __: False
    """Have something called after the commit of the transaction that is open; ``False`` where nobody can be asked to."""


class Adapted:
    """What the application has, and how to get at the driver's connection of it: itself, where it is no known wrapper."""

    def __init__(self, connection: object) -> None:
        self._connection = connection
        self._see_through = _known(_NAMES, connection)
        self._adapter = _known(_ADAPTERS, connection) or _ITSELF

    @property
    def connection(self) -> object:
        """What the application gave."""
        return self._connection

    def _now(self) -> tuple[Any, Adapter]:
        """Return the framework's object, as it is now, and its adapter."""
        if self._see_through is None:
            return self._connection, self._adapter
        connection = self._see_through(self._connection)
        return connection, _known(_ADAPTERS, connection) or _ITSELF

    def driver(self) -> object:
        """Return the driver's connection, as it is now, ready for an operation.

        Raises an ``AlkstoreError`` where it can't be used now.
        """
        connection, adapter = self._now()
        return adapter.driver(connection)

    def on_commit(self, callback: Deed) -> bool:
        """Have it called after the commit of the transaction that is open; ``False`` where nobody can be asked to."""
        connection, adapter = self._now()
        return adapter.on_commit(connection, callback)

    @property
    def begun(self) -> bool:
        """Whether the driver's connection can be had without beginning anything; if not, no transaction is open."""
        connection, adapter = self._now()
        return adapter.begun(connection)


def _known(table: Mapping[tuple[str, str], T], connection: object) -> T | None:
    for kind in type(connection).__mro__:
        found = table.get((kind.__module__, kind.__qualname__))
        if found is not None:
            return found
    return None


# --- SQLAlchemy --------------------------------------------------------------------------------------------------


def _sqlalchemy_connection(connection: Any) -> object:
    """SQLAlchemy's ``Connection``: begins SQLAlchemy's own transaction where none is, as any statement on it would."""
    if connection.closed:
        raise TransactionError("the SQLAlchemy connection is closed")
    if connection.invalidated and connection.get_transaction() is not None:
        raise TransactionError("the SQLAlchemy connection was invalidated: roll back, and begin anew")
    # SQLAlchemy takes no statement between the end of a block's transaction and the end of the block. It has no public
    # question for this; within a savepoint's block the operation would land in the transaction around it.
    block = getattr(connection, "_trans_context_manager", None)
    if block is not None and not block.is_active:
        raise TransactionError("the transaction of this SQLAlchemy block has ended: leave the block first")
    with _sqlalchemys_errors():
        if not connection.in_transaction():
            connection.begin()
        return connection.connection.driver_connection


def _sqlalchemy_session(session: Any) -> object:
    """SQLAlchemy's ``Session``: the connection of its current transaction, begun where none is."""
    if not session.is_active:
        raise TransactionError("the SQLAlchemy session's transaction has failed: roll it back, and begin anew")
    with _sqlalchemys_errors():
        connection = session.connection()
    return _sqlalchemy_connection(connection)


def _sqlalchemy_begun(connection: Any) -> bool:
    return not connection.closed and connection.in_transaction()


def _sqlalchemy_session_begun(session: Any) -> bool:
    return session.in_transaction()


class _Commits:
    """What is to be called after the commit of a SQLAlchemy session, by the transaction or savepoint that it lies in.

    Its events tell of savepoints, too: what lies in one that is kept belongs to what is around it from then on, and what
    lies in one that ends in any other way is forgotten.
    """

    def __init__(self, session: Any) -> None:
        from sqlalchemy import event

        self._callbacks: dict[object, list[Deed]] = {}
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    @staticmethod
    def _innermost(session: Any) -> Any:
        return session.get_nested_transaction() or session.get_transaction()

    def add(self, session: Any, callback: Deed) -> None:
        """Have it called after the commit."""
        self._callbacks.setdefault(self._innermost(session), []).append(callback)

    def _committed(self, session: Any) -> None:
        transaction = self._innermost(session)
        callbacks = self._callbacks.pop(transaction, [])
        if transaction.nested:
            around = transaction.parent
            while not (around.nested or around.parent is None):  # what a flush begins is neither
                around = around.parent
            self._callbacks.setdefault(around, []).extend(callbacks)
            return
        do_all(callbacks)

    def _ended(self, _: object, transaction: object) -> None:
        self._callbacks.pop(transaction, None)


def _sqlalchemy_session_hook(session: Any, callback: Deed) -> bool:
    if _known(_ADAPTERS, session.get_bind()) is not None:
        return False  # it is bound to a connection, whose own transaction may be around that of the session
    if "alkstore" not in session.info:
        session.info["alkstore"] = _Commits(session)
    commits: _Commits = session.info["alkstore"]
    commits.add(session, callback)
    return True


@contextmanager
def _sqlalchemys_errors() -> Generator[None]:
    from sqlalchemy import exc as errors

    try:
        yield
    except errors.UnboundExecutionError as exc:
        raise ValidationError(
            "connection must be bound to one database: of a SQLAlchemy session that is bound by its classes, or not at "
            "all, join session.connection(bind_arguments=...)"
        ) from exc
    except errors.TimeoutError as exc:
        raise EngineBusyError(f"SQLAlchemy's pool has no free connection: {exc}") from exc
    except errors.DBAPIError as exc:
        raise _of_driver(exc) from exc
    except errors.SQLAlchemyError as exc:
        raise TransactionError(f"the SQLAlchemy connection can't be used now: {exc}") from exc


def _of_driver(exc: Any) -> AlkstoreError:
    """Say what became of connecting, or of the BEGIN or SAVEPOINT with which SQLAlchemy puts the connection in order."""
    # By name, as drivers spell SQLite's codes: nothing here imports a driver.
    name: str = getattr(exc.orig, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return EngineBusyError("SQLAlchemy could not begin: another connection keeps the database locked")
    if exc.statement is None or exc.connection_invalidated:
        return EngineUnavailableError("SQLAlchemy has no connection to the database")
    return TransactionError("SQLAlchemy could not begin its transaction or savepoint: roll back, and begin anew")


# --- Django ------------------------------------------------------------------------------------------------------


def _django_wrapper(wrapper: Any) -> object:
    """Django's ``connections[alias]``."""
    from django.core.exceptions import SynchronousOnlyOperation  # pyright: ignore[reportMissingTypeStubs]
    from django.db.utils import Error, OperationalError  # pyright: ignore[reportMissingTypeStubs]

    try:
        wrapper.validate_thread_sharing()
        if wrapper.in_atomic_block and wrapper.needs_rollback:
            raise TransactionError(
                "Django's atomic block has failed, and must be left before the connection is used again"
            )
        if wrapper.in_atomic_block and wrapper.closed_in_transaction:
            raise TransactionError("Django's connection was closed within an atomic block, which must be left first")
        wrapper.ensure_connection()
    except cast("type[Exception]", OperationalError) as exc:
        raise EngineUnavailableError("Django has no connection to the database") from exc
    except cast("tuple[type[Exception], ...]", (Error, SynchronousOnlyOperation)) as exc:
        raise TransactionError(f"Django's connection can't be used here and now: {exc}") from exc
    return wrapper.connection


def _django_begun(wrapper: Any) -> bool:
    return wrapper.connection is not None


def _django_hook(wrapper: Any, callback: Deed) -> bool:
    if not wrapper.in_atomic_block:  # Django refuses it where the application manages transactions by hand
        return False
    wrapper.on_commit(callback)
    return True


def _itself(connection: object) -> object:
    return connection


_ITSELF: Final = Adapter(_itself)

_ADAPTERS: Final[dict[tuple[str, str], Adapter]] = {
    # It tells of a commit only before that is done.
    ("sqlalchemy.engine.base", "Connection"): Adapter(_sqlalchemy_connection, _sqlalchemy_begun),
    ("sqlalchemy.orm.session", "Session"): Adapter(
        _sqlalchemy_session, _sqlalchemy_session_begun, _sqlalchemy_session_hook
    ),
    ("django.db.backends.base.base", "BaseDatabaseWrapper"): Adapter(_django_wrapper, _django_begun, _django_hook),
}

_NAMES: Final[dict[tuple[str, str], Callable[[Any], object]]] = {
    # This thread's session.
    ("sqlalchemy.orm.scoping", "scoped_session"): lambda registry: registry(),
    # ``django.db.connection``, a name for ``connections["default"]``; Django's caches are named likewise.
    ("django.utils.connection", "ConnectionProxy"): lambda proxy: proxy._connections[proxy._alias],
}
"""What only stands for another object, which may be a different one each time."""
