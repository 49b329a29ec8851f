"""A place for each test, on each engine, and a store in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import alkstore
from alkstore.store import Store
from tests.integrations.conftest import place, postgres_database, postgres_place, sqlite_place
from tests.integrations.places import Place

__all__ = ["place", "postgres_database", "postgres_place", "sqlite_place"]


def options_of(place: Place) -> dict[str, Any]:
    """Return what `alkstore.open` is given besides the URL; who waits for a lock here gets it."""
    return {**place.options, "lock_timeout": 30}


@pytest.fixture
def open_store(place: Place) -> Iterator[Callable[..., Store]]:
    """Open a store in the test's place; closed after the test."""
    with ExitStack() as stack:

        def open_one(**options: Any) -> Store:
            return stack.enter_context(alkstore.open(place.url, **{**options_of(place), **options}))

        yield open_one


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    """A store in the test's place."""
    return open_store()
