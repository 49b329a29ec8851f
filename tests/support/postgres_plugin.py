"""Pytest's side of the throw-away PostgreSQL server: one per session, for all of xdist's workers.

Loaded by `pytest_plugins = ["tests.support.postgres_plugin"]` in the root conftest, or by `-p`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.postgres_server import (
    SHARED_VARIABLE,
    PostgresServer,
    close_session_server,
    private_server,
    session_server,
    shared_from_session,
)

_INPUT = "alkstore_postgres"


def pytest_configure(config: pytest.Config) -> None:
    """In a worker: take the controller's server for one's own."""
    shared = getattr(config, "workerinput", {}).get(_INPUT)
    if shared:
        os.environ[SHARED_VARIABLE] = shared


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In pytest-xdist's controller: hand every worker the one server."""
    node.workerinput[_INPUT] = shared_from_session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """At the end of the session: remove the server, and wait until it is gone."""
    close_session_server()


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """The session's PostgreSQL server; a test that needs it fails when there is none."""
    return session_server()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, dropped after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, to stop and start as it likes."""
    with private_server() as server:
        yield server
