"""Stores in schemas of their own in one database, and the back door to it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest

import alkstore
from alkstore.store import Store
from tests.postgres.door import Door
from tests.support.postgres_server import PostgresServer

Opener: TypeAlias = Callable[..., Store]


@pytest.fixture(scope="session")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of the folder's database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def schema() -> str:
    """The name of a schema that isn't there yet."""
    return f"s{secrets.token_hex(6)}"


@pytest.fixture
def open_store(database: str, schema: str) -> Iterator[Opener]:
    """Open stores on the test's schema, or wherever the test says; all are closed at the end."""
    stores: list[Store] = []

    def opener(url: str | None = None, **options: Any) -> Store:
        options.setdefault("schema", schema)
        store = alkstore.open(url or database, **options)
        stores.append(store)
        return store

    yield opener
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> Store:
    """A store on the test's schema."""
    return open_store()


@pytest.fixture
def door(database: str, schema: str) -> Iterator[Door]:
    """The back door to the test's schema, with a bare connection."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield Door(connection, schema)
