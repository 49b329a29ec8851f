"""Through a pooler that lends sessions by the transaction: nothing is needed of a session, and nothing left in it (W-4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

import alkstore
from alkstore import NotSupportedError, ValidationError
from alkstore.errors import EngineBusyError
from alkstore.store import Store
from tests.postgres.conftest import Opener
from tests.support.joining import work_through
from tests.support.poolers import SwappingPooler, pooler_for, through

WAIT = 60

# A client's name is PgBouncer's own to carry over.
LEFT = """
SELECT 'setting ' || name || ' ' || setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name'
UNION ALL SELECT 'prepared ' || statement FROM pg_prepared_statements
UNION ALL SELECT 'channel ' || channel FROM pg_listening_channels() AS channel
UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
"""


@pytest.fixture
def pooler(database: str) -> Iterator[SwappingPooler]:
    """A pooler that gives each transaction another session."""
    parts = urlsplit(database)
    with SwappingPooler(str(parts.hostname), int(parts.port or 5432)) as pooler:
        yield pooler


@pytest.fixture
def pooled(open_store: Opener, database: str, pooler: SwappingPooler) -> Callable[..., Store]:
    """Open a store through it."""

    def opener(**options: Any) -> Store:
        return open_store(through(database, pooler.port), **options)

    return opener


def left_behind(url: str) -> tuple[set[int], set[str]]:
    """Return the sessions that the pooler has lent in many transactions, and what was left in them."""
    pids: set[int] = set()
    left: set[str] = set()
    with psycopg.connect(url, prepare_threshold=None, autocommit=True) as connection:
        for _ in range(100):
            rows = connection.execute(
                f"SELECT pg_backend_pid(), NULL UNION ALL SELECT pg_backend_pid(), x FROM ({LEFT}) AS l (x)"
            )
            for pid, found in rows:
                pids.add(pid)
                left |= {found} - {None}
    return pids, left


def work(store: Store) -> None:
    """Use several sessions at a time."""
    queue = store.queue("q")
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(queue.enqueue, number) for number in range(40)]:
            done.result(WAIT)
        handles = queue.claim_batch("w", 40)
        for done in [threads.submit(handle.ack) for handle in handles]:
            assert done.result(WAIT)
    with store.transaction() as tx:
        tx.queue("q").enqueue_many(range(3_000))
        tx.execute("SELECT 1")
        with tx.transaction() as inner:
            inner.queue("q").enqueue("more")
    queue.purge(alkstore.State.PENDING)


def test_nothing_is_left_in_the_sessions(pooled: Callable[..., Store], pooler: SwappingPooler, database: str) -> None:
    """By operations of each kind, the schema's making included."""
    store = pooled(pooler="transaction", lock_timeout=7)
    work(store)
    pids, left = left_behind(through(database, pooler.port))
    assert 2 < len(pids)
    assert set() == left
    assert 100 < pooler.lent


def test_without_the_option_something_is(pooled: Callable[..., Store], pooler: SwappingPooler, database: str) -> None:
    """So that the test before this would see it."""
    store = pooled(wakes="poll", prepare_threshold=None, pooler="session")
    work(store)
    assert "setting enable_seqscan off" in left_behind(through(database, pooler.port))[1]


def test_each_transaction_is_set_up_as_a_session_would_be(pooled: Callable[..., Store], pooler: SwappingPooler) -> None:
    """Isolation, limits and durability, as asked for, in whichever session it runs."""
    store = pooled(pooler="transaction", lock_timeout=7, durability="relaxed")
    names = ["transaction_isolation", "lock_timeout", "synchronous_commit", "statement_timeout"]
    for _ in range(10):
        with store.transaction() as tx:
            found = [tx.execute(f"SHOW {name}").fetchone()[0] for name in names]
            assert ["read committed", "7s", "off", "0"] == found


def test_a_lock_is_waited_for_no_longer_than_allowed(open_store: Opener, pooled: Callable[..., Store]) -> None:
    """In auto-commit mode too."""
    store = pooled(pooler="transaction", lock_timeout=0.3)
    queue = store.queue("q")
    queue.enqueue(1)
    handle = queue.claim_one("w")
    assert handle is not None
    with open_store().transaction() as tx:
        assert tx.queue("q").handle(handle.id, handle.token).heartbeat()
        for _ in range(5):
            with pytest.raises(EngineBusyError):
                handle.ack()
    assert handle.ack()


@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("output", ["hex", "escape"])
def test_bytes_arrive_as_they_were_sent_whatever_a_session_makes_of_backslashes(
    pooled: Callable[..., Store], database: str, conforming: str, output: str
) -> None:
    """Z-3, where the values are written into the statement."""
    name = sql.Identifier(urlsplit(database).path[1:])
    settings = {"standard_conforming_strings": conforming, "bytea_output": output, "backslash_quote": "off"}
    with psycopg.connect(database, autocommit=True) as connection:
        for setting, value in settings.items():
            connection.execute(sql.SQL("ALTER DATABASE {} SET {} = {}").format(name, sql.Identifier(setting), value))
    sent = [bytes(range(256)), b"", b"\0", b"\\x00", b"'\\", b'"},{', b"NULL", *(bytes([each]) for each in range(256))]
    queue = pooled(pooler="transaction").queue("q", codec="raw")
    text = "'\\\"\u00e9\\x41"
    for payload in sent[:8]:
        queue.enqueue(payload, headers={"text": text})
    queue.enqueue_many(sent)
    queue.enqueue_many(alkstore.Item(payload, headers={"text": text + str(payload)}) for payload in sent[:8])
    jobs = [handle.job for handle in queue.claim_batch("w\\'", len(sent) + 16)]
    assert sent[:8] + sent + sent[:8] == [job.payload for job in jobs]
    assert [text] * 8 == [job.headers["text"] for job in jobs[:8]]
    assert [text + str(payload) for payload in sent[:8]] == [job.headers["text"] for job in jobs[-8:]]


def test_waiting_is_by_polling_where_nobody_can_listen(pooled: Callable[..., Store]) -> None:
    """No session is tried that could hear nothing; with ``listen_url`` one goes around the pooler."""
    store = pooled(pooler="transaction")
    assert "poll" == store.health().wakes
    with pytest.raises(NotSupportedError, match="listen_url"):
        store.listen("c")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, store.queue("q").consume("w", poll_interval=0.2))
        store.queue("q").enqueue(1)
        assert 1 == waiting.result(WAIT).payload


def test_who_listens_goes_around_it(pooled: Callable[..., Store], database: str) -> None:
    store, other = pooled(pooler="transaction", listen_url=database), pooled(pooler="transaction")
    with store.listen("c") as listener, ThreadPoolExecutor(1) as thread:
        other.notify("c", "x")
        found = listener.get(WAIT)
        assert found is not None
        assert "x" == found.payload
        waiting = thread.submit(next, store.queue("q").consume("w", poll_interval=3_600))
        other.queue("q").enqueue(1)
        assert 1 == waiting.result(WAIT).payload
    assert "notify" == store.health().wakes


def test_an_applications_connection_through_it_can_be_joined(
    pooled: Callable[..., Store], database: str, pooler: SwappingPooler
) -> None:
    store = pooled(pooler="transaction")
    with psycopg.connect(through(database, pooler.port), prepare_threshold=None) as connection:
        work_through(store, connection)


def test_a_pooler_that_nobody_told_of_is_found_out(
    open_store: Opener, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By the session in which a statement runs: it isn't the one that was told. It is said once, and all works as it should."""
    pooler = pooler_for(database)
    try:
        url = through(database, pooler.port)
        with caplog.at_level(logging.WARNING, logger="alkstore"):
            store = open_store(url, lock_timeout=7)
            work(store)
        if not isinstance(pooler, SwappingPooler):  # which tells the truth at times
            assert 1 == len([each for each in caplog.records if "seems to lend sessions" in each.message])
            assert set() == left_behind(url)[1]
    finally:
        pooler.close()


@pytest.mark.parametrize("wrong", ["statement", True, ""])
def test_another_kind_of_pooler_is_refused(open_store: Opener, wrong: object) -> None:
    with pytest.raises(ValidationError, match="pooler must be 'transaction', 'session' or None"):
        open_store(pooler=wrong)
