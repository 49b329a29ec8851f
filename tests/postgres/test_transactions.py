"""What of transactions is PostgreSQL's own (T-1, T-5): aborted ones, settings, and sessions left behind."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import psycopg
import pytest

import alkstore
from alkstore.errors import EngineError, EngineUnavailableError, TransactionError
from alkstore.records import NewJob
from alkstore.store import Store
from alkstore_postgres.pool import Connection
from alkstore_postgres.runner import commit
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, engine_of, in_transaction


def test_bad_sql_comes_out_as_the_drivers_own_and_aborts(open_store: Opener, door: Door) -> None:
    """T-1, T-5: what follows is refused, afterwards all is well, and no session is left in a transaction."""
    store = open_store(pool_size=2)
    queue = store.queue("q")
    with pytest.raises(TransactionError), store.transaction() as tx:
        tx.queue("q").enqueue(1)
        with pytest.raises(psycopg.errors.UndefinedColumn):
            tx.execute("SELECT nosuch")
        with pytest.raises(TransactionError):
            tx.queue("q").enqueue(2)
    for n in range(20):
        queue.enqueue(n)
        assert in_transaction(door.sessions()) == []
    assert queue.stats().ready == 20


def test_a_savepoint_heals_what_failed_within_it(store: Store, door: Door) -> None:
    with store.transaction() as tx:
        tx.queue("q").enqueue("kept")
        with pytest.raises(psycopg.errors.DivisionByZero), tx.transaction():
            tx.queue("q").enqueue("undone")
            tx.execute("SELECT 1 / 0")
        tx.queue("q").enqueue("kept too")
    assert store.queue("q").stats().ready == 2


def test_an_aborted_transaction_is_never_taken_for_committed(store: Store, door: Door) -> None:
    """The server answers the COMMIT of an aborted transaction with ROLLBACK, and no error."""
    inner = engine_of(store).begin()
    inner.executor.insert("q", [_job()], None)
    with pytest.raises(psycopg.Error):
        inner.execute("SELECT nosuch", None)
    assert not inner.usable
    with pytest.raises(TransactionError):
        commit(inner._connection)  # pyright: ignore[reportPrivateUsage]
    inner.rollback()
    inner = engine_of(store).begin()
    with pytest.raises(psycopg.Error):
        inner.execute("SELECT nosuch", None)
    with pytest.raises(TransactionError):
        inner.commit()
    assert door.live() == set()
    assert in_transaction(door.sessions()) == []


def _job() -> NewJob:
    return NewJob("json", b"1", "{}", 0, 5, 60_000_000, 5, 3600, None, 0, True, None)


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_the_application_ends_itself_is_over(store: Store, ending: str) -> None:
    """T-5: nothing silently runs outside of it."""
    with pytest.raises(TransactionError), store.transaction() as tx:
        tx.queue("q").enqueue(1)
        tx.execute(ending)
        with pytest.raises(TransactionError):
            tx.queue("q").enqueue(2)
    assert store.queue("q").stats().ready == (1 if ending == "COMMIT" else 0)


def test_a_commit_that_the_database_refuses_is_an_error_of_ours(store: Store, door: Door) -> None:
    """A deferred constraint of the application's: everything is rolled back."""
    door.do("CREATE TABLE {schema}.orders (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(EngineError) as caught, store.transaction() as tx:
        tx.queue("q").enqueue(1)
        for _ in range(2):
            tx.execute(f'INSERT INTO "{door.schema}".orders VALUES (1)')
    assert isinstance(caught.value.__cause__, psycopg.errors.UniqueViolation)
    assert door.live() == set()
    assert in_transaction(door.sessions()) == []


def test_a_terminated_session_is_found_out(store: Store, door: Door) -> None:
    """T-1: the rollback doesn't complain about a connection that is gone; the pool has another."""
    with pytest.raises(EngineUnavailableError), store.transaction() as tx:
        tx.queue("q").enqueue(1)
        pid = tx.execute("SELECT pg_backend_pid()").fetchone()[0]
        door.do("SELECT pg_terminate_backend(%s, 10000)", pid)
        tx.queue("q").enqueue(2)
    assert door.live() == set()
    with pytest.raises(RuntimeError, match="mine"), store.transaction() as tx:
        pid = tx.execute("SELECT pg_backend_pid()").fetchone()[0]
        door.do("SELECT pg_terminate_backend(%s, 10000)", pid)
        raise RuntimeError("mine")
    assert store.queue("q").enqueue(1) > 0


def test_a_transaction_names_its_isolation(store: Store) -> None:
    """Z-12."""
    with store.transaction() as tx:
        assert tx.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        assert tx.execute("SHOW transaction_read_only").fetchone() == ("off",)


@pytest.mark.parametrize("parameters", [None, [7], {"n": 7}])
def test_the_applications_statements_are_the_drivers(store: Store, parameters: Any) -> None:
    """T-1: its placeholders, its cursor, and a percent sign that is one where there are no parameters."""
    with store.transaction() as tx:
        statement = {type(None): "SELECT 7, '%'", list: "SELECT %s, '%%'", dict: "SELECT %(n)s, '%%'"}[type(parameters)]
        cursor = tx.execute(statement, parameters)
        assert isinstance(cursor, psycopg.Cursor)
        assert cursor.fetchall() == [(7, "%")]


def test_a_session_that_the_application_left_listening_is_dropped_at_the_first_news(store: Store, door: Door) -> None:
    """What arrives on an idle connection is the end as far as the pool can tell; another one takes its place."""
    with store.transaction() as tx:
        tx.execute("LISTEN news")
    door.do("NOTIFY news")
    assert store.queue("q").enqueue(1) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "SET client_encoding = 'LATIN1'",
        "set default_transaction_read_only to on",
        "SELECT 1; SET statement_timeout = 1",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SELECT set_config('array_nulls', 'off', false)",
        "LISTEN something",
    ],
)
def test_what_the_application_sets_for_its_session_ends_with_the_transaction(
    open_store: Opener, door: Door, statement: str
) -> None:
    """The connection isn't given to anybody else."""
    store = open_store(pool_size=1)
    with store.transaction() as tx:
        before = tx.execute("SELECT pg_backend_pid()").fetchone()
        tx.execute(statement)
    with store.transaction() as tx:
        assert before != tx.execute("SELECT pg_backend_pid()").fetchone()
    queue = store.queue("q")
    queue.enqueue_many(["\u0416", alkstore.Item(2, delay=0)])
    assert ["\u0416", 2] == [handle.payload for handle in queue.claim_batch("w", 2)]


@pytest.mark.parametrize("statement", ["SET LOCAL statement_timeout = 1000", "SELECT 1", "UPDATE {} SET n = 2"])
def test_what_ends_with_the_transaction_anyway_costs_no_connection(open_store: Opener, statement: str) -> None:
    store = open_store(pool_size=1)
    with store.transaction() as tx:
        before = tx.execute("SELECT pg_backend_pid()").fetchone()
        tx.execute("CREATE TEMPORARY TABLE mine (n int) ON COMMIT DROP")
        tx.execute(statement.format("mine"))
    with store.transaction() as tx:
        assert before == tx.execute("SELECT pg_backend_pid()").fetchone()


def test_a_cursor_is_closed_with_its_transaction(store: Store) -> None:
    """T-5: nothing silently runs outside."""
    with store.transaction() as tx:
        cursor = tx.execute("SELECT 1")
        assert [(1,)] == cursor.fetchall()
    with pytest.raises(psycopg.InterfaceError, match="closed"):
        cursor.execute("SELECT 2")


def test_a_thread_that_ends_inside_a_transaction_leaves_no_connection_behind(open_store: Opener, door: Door) -> None:
    """It is rolled back as the thread ends, without waiting for the garbage collector."""
    store = open_store(pool_size=1)

    def begin() -> None:
        store.transaction().__enter__().queue("q").enqueue(1)

    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(3):
                thread = threading.Thread(target=begin)
                thread.start()
                thread.join()
                store.queue("q").stats()
    finally:
        gc.enable()
    assert in_transaction(door.sessions()) == []
    assert door.live() == set()


def test_an_exception_out_of_nowhere_while_a_connection_is_given_back_loses_no_place(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch, door: Door
) -> None:
    """As a signal handler raises it, in the middle of the rollback."""
    store = open_store(pool_size=1)
    execute = Connection.execute

    def interrupted(self: Connection, query: Any, *rest: Any, **options: Any) -> Any:
        if query == "ROLLBACK":
            raise KeyboardInterrupt
        return execute(self, query, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt), store.transaction() as tx:
            tx.queue("q").enqueue(1)
            raise ZeroDivisionError
    assert 1 < store.queue("q").enqueue(2)
    assert in_transaction(door.sessions()) == []
