"""Stores in schemas of their own in one database, and the back door to it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import psycopg
import pytest

import alkstore
from alkstore.store import Store
from tests.postgres.door import Door
from tests.support.postgres_server import PostgresServer
from tests.support.tcp_proxy import TcpProxy

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


@pytest.fixture
def through(database: str, open_store: Opener) -> Iterator[tuple[TcpProxy, Callable[..., Store]]]:
    """A proxy, and what opens stores whose listening session goes through it; with ``whole``, everything of theirs."""
    parts = urlsplit(database)
    assert parts.hostname is not None
    assert parts.port is not None
    with TcpProxy(parts.hostname, parts.port) as proxy:
        login = f"{parts.username}:{parts.password}"
        url = parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}", query="sslmode=disable").geturl()

        def opener(*, whole: bool = False, **options: Any) -> Store:
            return open_store(url, **options) if whole else open_store(listen_url=url, **options)

        yield proxy, opener
