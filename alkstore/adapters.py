"""Whose connection it is, and how to get at the driver's: SQLAlchemy and Django, neither imported (clause T-3).

A connection is recognised by the module and name of its classes, so that nothing is imported that the application has
not imported already. Each adapter gives the driver's own connection *anew for every operation*: after a commit,
SQLAlchemy's session may be on another connection, and the one it had before may be somebody else's by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

from alkstore.errors import TransactionError

Resolve: TypeAlias = Callable[[], object]
"""Gives the driver's connection, as it is now; raises ``TransactionError`` where it can't be used now."""


def resolver(connection: object) -> Resolve:
    """Return how to get at the driver's connection of what the application has: itself, where it is no known wrapper."""
    for kind in type(connection).__mro__:
        adapter = _ADAPTERS.get((kind.__module__, kind.__qualname__))
        if adapter is not None:
            return lambda: adapter(cast(Any, connection))
    return lambda: connection


def _sqlalchemy_connection(connection: Any) -> object:
    """SQLAlchemy's ``Connection``: begins SQLAlchemy's own transaction where none is, as any statement on it would."""
    if connection.closed:
        raise TransactionError("the SQLAlchemy connection is closed")
    if connection.invalidated:
        raise TransactionError("the SQLAlchemy connection was invalidated: roll back, and begin anew")
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _sqlalchemy_session(session: Any) -> object:
    """SQLAlchemy's ``Session``: the connection of its current transaction, begun where none is."""
    if not session.is_active:
        raise TransactionError("the SQLAlchemy session's transaction has failed: roll it back, and begin anew")
    return _sqlalchemy_connection(session.connection())


def _sqlalchemy_scoped_session(registry: Any) -> object:
    """SQLAlchemy's ``scoped_session``: this thread's session."""
    return _sqlalchemy_session(registry())


def _django_wrapper(wrapper: Any) -> object:
    """Django's ``connections[alias]``."""
    wrapper.validate_thread_sharing()
    if wrapper.in_atomic_block and wrapper.needs_rollback:
        raise TransactionError("Django's atomic block has failed, and must be left before the connection is used again")
    wrapper.ensure_connection()
    return wrapper.connection


def _django_proxy(proxy: Any) -> object:
    """Django's ``django.db.connection``: a name for ``connections["default"]``."""
    return _django_wrapper(proxy._connections[proxy._alias])


_ADAPTERS: Final[dict[tuple[str, str], Callable[[Any], object]]] = {
    ("sqlalchemy.engine.base", "Connection"): _sqlalchemy_connection,
    ("sqlalchemy.orm.session", "Session"): _sqlalchemy_session,
    ("sqlalchemy.orm.scoping", "scoped_session"): _sqlalchemy_scoped_session,
    ("django.db.backends.base.base", "BaseDatabaseWrapper"): _django_wrapper,
    ("django.utils.connection", "ConnectionProxy"): _django_proxy,
}
