"""A password in the URL appears in no error, repr, traceback or log line (S-6), against a real server."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

import alkstore
from alkstore.errors import AlkstoreError, EngineUnavailableError
from tests.postgres.conftest import Opener
from tests.postgres.test_location import MALFORMED, SECRET


def everything_said(error: BaseException | None, log: pytest.LogCaptureFixture) -> str:
    """Return the text, repr and traceback of an error and of all that lies behind it, and every log line."""
    said = [record.getMessage() + repr(record.args) for record in log.records] + [log.text]
    while error is not None:
        said += [str(error), repr(error), repr(error.args), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "".join(said)


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """A role whose password is the secret."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE alkstore_secretive LOGIN SUPERUSER PASSWORD {}").format(SECRET))
        yield "alkstore_secretive"
        connection.execute("DROP OWNED BY alkstore_secretive CASCADE")
        connection.execute("DROP ROLE alkstore_secretive")


def with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


@pytest.mark.parametrize("url", MALFORMED)
def test_malformed_urls(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AlkstoreError) as caught:
        alkstore.open(url)
    assert SECRET not in everything_said(caught.value, caplog)


def test_a_wrong_password_is_called_that_and_not_shown(database: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(EngineUnavailableError, match="authentication") as caught:
        alkstore.open(with_login(database, "postgres", SECRET))
    assert SECRET not in everything_said(caught.value, caplog)
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)


def test_a_driver_message_that_would_hold_the_password_is_left_out(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A role of the same name as its password: libpq's message names the role."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(EngineUnavailableError) as caught:
        alkstore.open(with_login(database, SECRET, SECRET))
    assert SECRET not in everything_said(caught.value, caplog)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("change", ["host", "port", "database", "parameter"])
def test_a_place_that_is_not_there(database: str, change: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = with_login(database, "postgres", SECRET)
    parts = urlsplit(url)
    url = {
        "host": url.replace("127.0.0.1", "host.invalid"),
        "port": url.replace(f":{parts.port}/", ":1/"),
        "database": parts._replace(path="/nosuch").geturl(),
        "parameter": url + "?sslmode=nosuch",
    }[change]
    with pytest.raises(EngineUnavailableError) as caught:
        alkstore.open(url)
    assert SECRET not in everything_said(caught.value, caplog)


def test_a_store_that_works_shows_none(
    role: str, database: str, open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither do the reprs of its parts, nor an error that comes later."""
    caplog.set_level(logging.DEBUG)
    store = open_store(with_login(database, role, SECRET), pool_size=1)
    queue = store.queue("q")
    queue.enqueue(1)
    shown = ""
    with pytest.raises(psycopg.Error) as caught, store.transaction() as tx:
        parts = (store, store.engine, queue, tx, store.engine.executor(), vars(store.engine), vars(tx))
        shown = "".join(repr(part) for part in parts)
        tx.execute("SELECT nosuch")
    assert SECRET not in shown
    assert SECRET not in everything_said(caught.value, caplog)
