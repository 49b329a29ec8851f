"""A place for each test, on each engine, a store in it, and the command line on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import alkstore
from tests.cli.runs import Cli
from tests.integrations.conftest import place, postgres_database, sqlite_place, store
from tests.integrations.places import Place

__all__ = ["place", "postgres_database", "sqlite_place", "store"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let no test find the `pyproject.toml` of whoever runs it."""
    monkeypatch.chdir(tmp_path)


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
