"""A place for each test, on each engine, a store in it, and the command line on it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import alkstore
from tests.cli.runs import Cli
from tests.integrations.places import Place
from tests.support.postgres_server import PostgresServer


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let no test find the `pyproject.toml` of whoever runs it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of the folder's database on PostgreSQL."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the test's store is to be."""
    if request.param == "sqlite":
        return Place("sqlite", f"sqlite:///{tmp_path / 'store.db'}")
    return Place("postgresql", request.getfixturevalue("postgres_database"), f"s{secrets.token_hex(6)}")


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    """A file, for tests of what doesn't depend on the engine, and of what only SQLite does."""
    return Place("sqlite", f"sqlite:///{tmp_path / 'store.db'}")


@pytest.fixture
def store(place: Place) -> Iterator[alkstore.Store]:
    """A store in the test's place."""
    with alkstore.open(place.url, **place.options) as store:
        yield store


@pytest.fixture
def cli(place: Place, tmp_path: Path) -> Cli:
    """The command line on the test's place."""
    return Cli(place, tmp_path)


@pytest.fixture
def sqlite_store(sqlite_place: Place) -> Iterator[alkstore.Store]:
    """A store in a file."""
    with alkstore.open(sqlite_place.url, **sqlite_place.options) as store:
        yield store


@pytest.fixture
def sqlite_cli(sqlite_place: Place, tmp_path: Path) -> Cli:
    """The command line on a file."""
    return Cli(sqlite_place, tmp_path)
