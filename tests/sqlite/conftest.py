"""A file for each test, and stores on it that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import alkstore
from tests.sqlite.support import url_of

Opener: TypeAlias = Callable[..., alkstore.Store]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database may be made."""
    return tmp_path / "store.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Opener]:
    """Return what opens stores on the file, without waiting for the disk unless told to."""
    with ExitStack() as stack:

        def opener(**options: Any) -> alkstore.Store:
            options.setdefault("durability", "relaxed")
            return stack.enter_context(alkstore.open(url_of(path), **options))

        yield opener


@pytest.fixture
def store(open_store: Opener) -> alkstore.Store:
    """Return a store on a new file."""
    return open_store()
