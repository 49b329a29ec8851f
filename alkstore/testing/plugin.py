"""Fixtures for pytest: ``pytest_plugins = ["alkstore.testing.plugin"]`` in the topmost ``conftest.py``.

Or ``-p alkstore.testing.plugin`` on the command line. Each of them may be overridden in a ``conftest.py``, as fixtures are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest

import alkstore
from alkstore.store import Store
from alkstore.testing.clock import FrozenClock

_URL: Final = "alkstore_url"
_POSTGRES: Final = ("postgresql:", "postgres:", "postgresql+psycopg:")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option."""
    parser.addini(_URL, "where alkstore_store is: a memory store, if nothing is said", default="sqlite:///:memory:")


@pytest.fixture
def alkstore_url(request: pytest.FixtureRequest) -> str:
    """Where ``alkstore_store`` is: the ini option ``alkstore_url``, or in memory."""
    return str(request.config.getini(_URL))


@pytest.fixture
def alkstore_options(alkstore_url: str) -> Iterator[dict[str, Any]]:
    """What ``alkstore.open`` is given besides: on PostgreSQL a schema of the test's own, dropped after the test."""
    if not alkstore_url.startswith(_POSTGRES):
        yield {}
        return
    schema = f"alkstore_test_{secrets.token_hex(8)}"
    yield {"schema": schema}
    # Once everything is closed that the test has opened there: on a connection of its own, and in the library's stead, which
    # has no operation that destroys a store.
    import psycopg
    from psycopg import sql

    with psycopg.connect(alkstore_url.replace("+psycopg", "", 1), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture
def alkstore_clock() -> FrozenClock:
    """The clock of ``alkstore_store``, which stands still until the test moves it."""
    return FrozenClock()


@pytest.fixture
def alkstore_store(alkstore_url: str, alkstore_options: dict[str, Any], alkstore_clock: FrozenClock) -> Iterator[Store]:
    """A fresh store for the test, which goes by ``alkstore_clock``; closed after it."""
    with alkstore.open(alkstore_url, clock=alkstore_clock, **alkstore_options) as store:
        yield store
