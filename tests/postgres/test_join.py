"""The application's own psycopg connections, in whatever state and with whatever settings (T-3)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import ClientCursor
from psycopg.adapt import Dumper, Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, scalar_row

import alkstore
from alkstore import (
    EngineBusyError,
    EngineUnavailableError,
    OutcomeUnknownError,
    TransactionError,
    ValidationError,
)
from alkstore.store import Store
from alkstore_postgres import sql
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, engine_of, in_transaction
from tests.support.joining import results_through, work_through
from tests.support.postgres_server import PostgresServer, private_server
from tests.support.tcp_proxy import Fate, TcpProxy
from tests.support.waiting import wait_until

WAIT = 60


@pytest.fixture
def connect(database: str) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Connect to the database as an application would; closed after the test."""
    opened: list[psycopg.Connection[Any]] = []

    def open_another(url: str | None = None, **options: Any) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(url or database, **options))
        return opened[-1]

    yield open_another
    for connection in opened:
        connection.close()


def status(connection: psycopg.Connection[Any]) -> TransactionStatus:
    """Return what the connection is in the middle of."""
    return connection.info.transaction_status


# --- who begins and who commits --------------------------------------------------------------------------------------


def test_joining_begins_and_aborts_nothing(store: Store, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    """The place is looked at beneath the driver, in each state that a connection may be in."""
    connection = connect()
    store.join(connection)
    assert TransactionStatus.IDLE is status(connection)
    connection = connect(autocommit=True)
    store.join(connection)
    assert TransactionStatus.IDLE is status(connection)
    connection = connect()
    connection.execute("CREATE TEMPORARY TABLE mine (n int)")
    store.join(connection)
    assert TransactionStatus.INTRANS is status(connection)
    connection.commit()
    assert [] == connection.execute("SELECT n FROM mine").fetchall()


def test_the_drivers_own_transaction_blocks_work(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], door: Door
) -> None:
    """Outermost and nested, in auto-commit mode and not."""
    for autocommit in (True, False):
        connection = connect(autocommit=autocommit)
        queue = store.join(connection).queue("q")
        with connection.transaction():
            queue.enqueue(1)
            with connection.transaction(force_rollback=True):
                queue.enqueue_many(range(2_500))
            with pytest.raises(ZeroDivisionError), connection.transaction():
                queue.enqueue(2 // len(queue.jobs(after=2**40)))
            with store.join(connection).transaction() as inner:
                inner.queue("q").enqueue(3)
            assert door.live() == set()
        assert TransactionStatus.IDLE is status(connection)
        assert ["1", "3"] == [
            row[0] for row in door.ask("SELECT convert_from(payload, 'UTF8') FROM {jobs} ORDER BY id")
        ]
        assert 2 == store.queue("q").purge("pending")


def test_a_failed_statement_aborts_as_any_does_and_all_is_well_after_the_rollback(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], door: Door
) -> None:
    """T-1, T-5: bad SQL caught inside, then ``enqueue``: refused; 20 calls later no session is in a transaction."""
    connection = connect()
    joined = store.join(connection)
    queue = joined.queue("q")
    queue.enqueue("before")
    with pytest.raises(psycopg.errors.UndefinedTable):
        joined.execute("SELECT FROM no_such_table")
    for call in (
        lambda: queue.enqueue(1),
        lambda: joined.execute("SELECT 1"),
        lambda: joined.transaction().__enter__(),
    ):
        with pytest.raises(TransactionError, match="aborted"):
            call()
    with pytest.raises(TransactionError, match="aborted"):
        store.join(connection)
    connection.rollback()
    for turn in range(20):
        queue.enqueue(turn)
        connection.commit()
        store.queue("q").enqueue(turn)
    assert 40 == store.queue("q").stats().ready
    assert in_transaction(door.sessions()) == []
    assert TransactionStatus.IDLE is status(connection)


def test_a_savepoint_heals_what_failed_within_it(store: Store, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect()
    joined = store.join(connection)
    joined.queue("q").enqueue("before")
    with pytest.raises(psycopg.errors.DivisionByZero), joined.transaction() as inner:
        inner.execute("SELECT 1 / 0")
    joined.queue("q").enqueue("after")
    connection.commit()
    assert 2 == store.queue("q").stats().ready


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_the_applications_isolation_is_its_own(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], level: str
) -> None:
    """What it finds depends on that; what it writes stands or falls with it all the same."""
    connection = connect()
    connection.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}".encode())
    connection.commit()
    work_through(store, connection)
    assert (level.lower(),) == connection.execute("SHOW transaction_isolation").fetchone()


def test_another_claimers_ripening_is_done_beside_the_applications_transaction(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], open_store: Opener
) -> None:
    """What comes due there stays to be had by others: the application may keep its transaction open for long."""
    store.queue("q").enqueue_many(range(50), delay=0.05)
    connection = connect()
    connection.execute("SELECT pg_sleep(0.1)")
    assert 5 == len(store.join(connection).queue("q").claim_batch("w", 5))
    with open_store(lock_timeout=1) as other:
        assert 45 == len(other.queue("q").claim_batch("w", 50))
    connection.rollback()


# --- settings of the connection ---------------------------------------------------------------------------------------


class _Odd(Loader):
    def load(self, data: Any) -> Any:
        return Decimal("NaN")


class _Worse(Dumper):
    def dump(self, obj: Any) -> bytes:
        return b"not what it was"


@pytest.mark.parametrize("row_factory", [dict_row, scalar_row], ids=["dict", "scalar"])
@pytest.mark.parametrize(
    "cursor_factory", [psycopg.Cursor, ClientCursor, psycopg.RawCursor], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("prepare_threshold", [0, None])
def test_factories_and_adapters_of_the_connection_do_not_matter(
    store: Store,
    connect: Callable[..., psycopg.Connection[Any]],
    row_factory: Any,
    cursor_factory: Any,
    prepare_threshold: int | None,
) -> None:
    """What comes of it is what comes on a plain connection; and they are as they were."""
    plain = work_through(store, connect())
    connection = connect(row_factory=row_factory, cursor_factory=cursor_factory, prepare_threshold=prepare_threshold)
    for name in ("int8", "text", "bool", "bytea", "int4", "int2"):
        connection.adapters.register_loader(name, _Odd)
    for kind in (str, int, bytes, bool):
        connection.adapters.register_dumper(kind, _Worse)
    assert plain == work_through(store, connection)
    assert [] == store.queues()
    assert (row_factory, cursor_factory) == (connection.row_factory, connection.cursor_factory)
    assert prepare_threshold == connection.prepare_threshold
    assert results_through(store, connect()) == results_through(store, connection)


def test_the_session_is_left_as_it_is(store: Store, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    """Nothing is set, nothing prepared, nothing locked or listened to beyond the transaction."""
    connection = connect()
    look = (
        "SELECT (SELECT array_agg(name || setting ORDER BY name) FROM pg_settings WHERE source = 'session'),"
        " (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),"
        " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
    )
    before = connection.execute(look).fetchone()
    connection.commit()
    for _ in range(8):
        work_through(store, connection)
    assert before == connection.execute(look).fetchone()


# --- which connections will do ----------------------------------------------------------------------------------------


def test_another_database_is_refused_before_anything_is_written(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], postgres_server: PostgresServer, schema: str
) -> None:
    """Also one that has a store in a schema of the same name; the application's transaction there goes on."""
    url = postgres_server.create_database()
    try:
        with alkstore.open(url, schema=schema) as other, closing(psycopg.connect(url)) as connection:
            connection.execute("CREATE TABLE mine AS SELECT 1 AS n")
            with pytest.raises(ValidationError, match="the store's own database") as raised:
                store.join(connection)
            password = urlsplit(url).password
            assert password
            assert password not in str(raised.value)
            assert TransactionStatus.INTRANS is status(connection)
            connection.commit()
            assert [] == other.queues()
            other.join(connection).queue("q").enqueue(1)
            connection.commit()
            assert ["q"] == other.queues()
    finally:
        postgres_server.drop_database(url)


def test_the_same_database_by_another_way_is_the_same(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], database: str
) -> None:
    """By another name of the host, as another role, with other parameters."""
    parts = urlsplit(database)
    assert "127.0.0.1" == parts.hostname
    url = parts._replace(netloc=f"{parts.username}:{parts.password}@localhost:{parts.port}").geturl()
    connection = connect(url, application_name="mine")
    store.join(connection).queue("q").enqueue(1)
    connection.commit()
    assert ["q"] == store.queues()


def test_another_server_with_a_database_of_the_same_number_is_refused() -> None:
    """Two new servers number their databases alike."""
    schema = f"s{secrets.token_hex(6)}"
    with private_server() as server, private_server() as other, alkstore.open(server.url, schema=schema) as store:
        alkstore.open(other.url, schema=schema).close()
        with closing(psycopg.connect(server.url)) as own, closing(psycopg.connect(other.url)) as connection:
            number = "SELECT oid FROM pg_database WHERE datname = current_database()"
            assert own.execute(number).fetchone() == connection.execute(number).fetchone()
            with pytest.raises(ValidationError, match="the store's own database"):
                store.join(connection)


def test_a_server_that_was_started_anew_is_known_again(tmp_path: Any) -> None:
    """The store looks anew before it says that a connection is to another one."""
    with private_server() as server, alkstore.open(server.url, schema=f"s{secrets.token_hex(6)}") as store:
        for turn in (1, 2):
            with closing(psycopg.connect(server.url)) as connection:
                store.join(connection).queue("q").enqueue(turn)
                connection.commit()
            server.restart()
        assert 2 == store.queue("q").stats().ready


def test_connections_that_cannot_work_are_refused(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], database: str
) -> None:
    """An asynchronous one, one in pipeline mode, one with another client encoding."""

    async def asynchronous() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            with pytest.raises(ValidationError, match="not an asynchronous one"):
                store.join(connection)

    asyncio.run(asynchronous())
    connection = connect()
    with connection.pipeline(), pytest.raises(ValidationError, match="pipeline"):
        store.join(connection)
    with pytest.raises(ValidationError, match="client_encoding UTF8"):
        store.join(connect(client_encoding="latin1"))
    assert TransactionStatus.IDLE is status(connection)


def test_an_encoding_that_is_changed_later_is_refused_and_changed_back_is_not(
    store: Store, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    connection = connect(autocommit=True)
    queue = store.join(connection).queue("q")
    connection.execute("SET client_encoding TO latin1")
    with pytest.raises(TransactionError, match="client_encoding UTF8"):
        queue.enqueue("\u20ac", headers={"a": "\u20ac"})
    connection.execute("SET client_encoding TO utf8")
    queue.enqueue("\u20ac", headers={"a": "\u20ac"})
    assert "\u20ac" == store.queue("q").jobs()[0].payload


def test_a_connection_in_the_middle_of_a_copy_or_a_stream_is_busy(
    database: str, schema: str, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    """The driver keeps its lock until that is done, and would wait for it, in this very thread, for ever."""
    with alkstore.open(database, schema=schema, lock_timeout=0.2) as store:
        connection = connect()
        joined = store.join(connection)
        cursor = connection.cursor()
        with cursor.copy("COPY (SELECT 1) TO STDOUT") as copy:
            for call in (lambda: joined.queue("q").enqueue(1), lambda: store.join(connection)):
                with pytest.raises(EngineBusyError, match="COPY"):
                    call()
            assert b"1\n" == copy.read()
            assert b"" == copy.read()
        for row in cursor.stream("SELECT 1"):
            assert (1,) == row
            with pytest.raises(EngineBusyError, match="stream"):
                joined.queue("q").enqueue(2)
        joined.queue("q").enqueue(3)
        connection.commit()
        assert [3] == [job.payload for job in store.queue("q").jobs()]


def test_a_connection_that_another_thread_uses_is_waited_for(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], door: Door
) -> None:
    """As any statement on it would."""
    connection = connect()
    door.do("SELECT pg_advisory_lock(7)")
    with ThreadPoolExecutor(2) as threads:
        asleep = threads.submit(connection.execute, "SELECT pg_advisory_xact_lock(7)")
        wait_until(lambda: TransactionStatus.ACTIVE is status(connection), WAIT, "the statement runs")
        enqueued = threads.submit(lambda: store.join(connection).queue("q").enqueue(1))
        with pytest.raises(TimeoutError):
            enqueued.result(0.2)
        door.do("SELECT pg_advisory_unlock(7)")
        asleep.result(WAIT)
        enqueued.result(WAIT)
    connection.commit()
    assert 1 == store.queue("q").stats().ready


def test_a_connection_to_a_server_that_is_gone_is_refused(
    store: Store, connect: Callable[..., Any], door: Door
) -> None:
    connection = connect()
    door.do("SELECT pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
    with pytest.raises(EngineUnavailableError):
        store.join(connection)


@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
def test_a_transaction_that_is_ended_within_a_savepoint_is_not_followed_by_another(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], ending: str
) -> None:
    """The driver would begin one for the savepoint's end, which fails: and leave it aborted."""
    for well in (True, False):
        connection = connect()
        expected = TransactionError if well else ZeroDivisionError
        with pytest.raises(expected), store.join(connection).transaction() as inner:
            inner.queue("q").enqueue(1)
            getattr(connection, ending)()
            _ = well or 1 // 0
        assert status(connection) in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_lock_that_the_sessions_own_limit_gives_up_is_busy(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], door: Door
) -> None:
    """The library doesn't set one on the application's session."""
    job = store.queue("q").enqueue(1)
    connection = connect(options="-c lock_timeout=100ms")
    with door.connection.transaction():
        door.do("SELECT FROM {jobs} WHERE id = %s FOR UPDATE", job)
        with pytest.raises(EngineBusyError):
            store.join(connection).queue("q").cancel(job)
    connection.rollback()
    assert store.join(connection).queue("q").cancel(job)
    connection.commit()


def test_a_terminated_session_had_committed_nothing(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], door: Door
) -> None:
    """Within a transaction nothing can be in doubt: its commit is the application's."""
    connection = connect()
    joined = store.join(connection)
    joined.queue("q").enqueue(1)
    door.do("SELECT pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
    with pytest.raises(EngineUnavailableError, match="nothing"):
        joined.queue("q").enqueue(2)
    with pytest.raises(TransactionError, match="closed"):
        joined.queue("q").enqueue(3)
    assert door.live() == set()


@pytest.mark.parametrize("fate", ["answered", "lost"])
@pytest.mark.parametrize("many", [False, True])
def test_an_auto_commit_write_that_is_cut_is_in_doubt(
    store: Store, database: str, door: Door, fate: Fate, many: bool
) -> None:
    """S-5: one statement, or the COMMIT of an operation of several; it is whole or absent."""
    parts = urlsplit(database)
    assert parts.hostname is not None
    assert parts.port is not None
    with TcpProxy(parts.hostname, parts.port) as proxy:
        login = f"{parts.username}:{parts.password}"
        url = parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}", query="sslmode=disable").geturl()
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            queue = store.join(connection).queue("q")
            sprung = proxy.cut_at(b"COMMIT" if many else b"the-one-that-is-cut", fate)
            with pytest.raises(OutcomeUnknownError):
                queue.enqueue_many(range(2_500)) if many else queue.enqueue("the-one-that-is-cut")
            assert sprung.wait(WAIT)
    wait_until(lambda: len(door.live()) == ((2_500 if many else 1) if fate == "answered" else 0), WAIT, "the end of it")


def test_a_savepoint_that_can_not_be_rolled_back_to_hides_no_exception(
    store: Store, connect: Callable[..., psycopg.Connection[Any]], door: Door
) -> None:
    """As the session is terminated in the middle of a batch: the exception of what gives the jobs is the one to go up."""
    connection = connect()
    joined = store.join(connection)
    joined.queue("q").enqueue(1)

    def items() -> Iterator[int]:
        yield from range(2_000)
        door.do("SELECT pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        joined.queue("q").enqueue_many(items())
    joined = store.join(connect())
    with pytest.raises(ZeroDivisionError), engine_of(store).join(connection := connect()).atomic():
        door.do("SELECT pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
        raise ZeroDivisionError
    assert door.live() == set()


def test_a_wake_in_the_applications_transaction_leaves_its_durability_alone(
    store: Store, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    """What is rung by itself is committed without waiting for the disk; what the application commits isn't."""
    connection = connect()
    connection.execute("SET synchronous_commit TO on")
    connection.commit()
    with connection.transaction():
        store.join(connection, wake="notify").queue("q").enqueue("x")
        assert ("on",) == connection.execute("SHOW synchronous_commit").fetchone()
    ring = sql.Statements("alkstore")[sql.RING]
    with connection.transaction():
        connection.execute(ring, {"channel": "alkstore", "payloads": ["x", "y"]})
        assert ("off",) == connection.execute("SHOW synchronous_commit").fetchone()
    assert ("on",) == connection.execute("SHOW synchronous_commit").fetchone()
