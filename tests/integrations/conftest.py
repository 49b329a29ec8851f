"""A place for each test, on each engine, and a store in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import alkstore
from tests.integrations.places import Place
from tests.support.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of the folder's database on PostgreSQL."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the test's store is."""
    if request.param == "sqlite":
        return Place("sqlite", f"sqlite:///{tmp_path / 'store.db'}")
    return Place("postgresql", request.getfixturevalue("postgres_database"), f"s{secrets.token_hex(6)}")


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    """A file, for tests of what only SQLite does."""
    return Place("sqlite", f"sqlite:///{tmp_path / 'store.db'}")


@pytest.fixture
def postgres_place(postgres_database: str) -> Place:
    """A schema, for tests of what only PostgreSQL does."""
    return Place("postgresql", postgres_database, f"s{secrets.token_hex(6)}")


@pytest.fixture
def store(place: Place) -> Iterator[alkstore.Store]:
    """A store in the test's place."""
    with alkstore.open(place.url, **place.options) as store:
        yield store
