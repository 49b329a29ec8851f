"""The application's own sqlite3 connections, in whatever state and with whatever settings (T-3, T-6)."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import alkstore
from alkstore import EngineBusyError, NotSupportedError, StorageFullError, TransactionError, ValidationError
from tests.sqlite.support import Program, back_door, is_sound, look, pool_of, url_of
from tests.support.joining import results_through, work_through
from tests.support.waiting import wait_until

WAIT = 60.0

MODES: dict[str, dict[str, Any]] = {
    "legacy": {},
    "legacy, immediate": {"isolation_level": "IMMEDIATE"},
    "legacy, exclusive": {"isolation_level": "EXCLUSIVE"},
}
"""How to connect so that the application is the one to commit."""
AUTO_COMMIT: dict[str, dict[str, Any]] = {"legacy": {"isolation_level": None}}
if sys.version_info >= (3, 12):
    MODES["autocommit=False"] = {"autocommit": False}
    AUTO_COMMIT["autocommit=True"] = {"autocommit": True}

each_mode = pytest.mark.parametrize("options", MODES.values(), ids=MODES.keys())
each_auto_commit = pytest.mark.parametrize("options", AUTO_COMMIT.values(), ids=AUTO_COMMIT.keys())


@pytest.fixture
def connect(path: Path, store: alkstore.Store) -> Iterator[Callable[..., sqlite3.Connection]]:
    """Connect to the file of ``store`` as an application would; closed after the test."""
    opened: list[sqlite3.Connection] = []

    def open_another(**options: Any) -> sqlite3.Connection:
        options.setdefault("timeout", 0.05)
        opened.append(sqlite3.connect(path, **options))
        return opened[-1]

    yield open_another
    for connection in opened:
        connection.close()


def payloads(path: Path) -> list[str]:
    """Return what is committed, by the back door."""
    return [bytes(payload).decode() for payload in look(path, "SELECT payload FROM alkstore_jobs ORDER BY id")]


# --- who begins and who commits --------------------------------------------------------------------------------------


@each_mode
def test_an_operation_is_the_applications_to_commit(
    connect: Callable[..., sqlite3.Connection], options: dict[str, Any], store: alkstore.Store, path: Path
) -> None:
    connection = connect(**options)
    queue = store.join(connection).queue("q")
    assert [] == queue.jobs()
    queue.enqueue(1)
    assert connection.in_transaction
    connection.rollback()
    queue.enqueue(2)
    connection.execute("CREATE TABLE mine (n)")
    connection.commit()
    queue.enqueue(3)
    connection.execute("INSERT INTO mine VALUES (3)")
    connection.rollback()
    assert ["2"] == payloads(path)
    assert [] == look(path, "SELECT n FROM mine")


@each_auto_commit
def test_in_auto_commit_mode_an_explicit_transaction_is_the_applications(
    connect: Callable[..., sqlite3.Connection], options: dict[str, Any], store: alkstore.Store, path: Path
) -> None:
    connection = connect(**options)
    queue = store.join(connection).queue("q")
    queue.enqueue(1)
    assert not connection.in_transaction
    connection.execute("BEGIN")
    queue.enqueue_many([2, 3])
    assert ["1"] == payloads(path)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    queue.enqueue(4)
    connection.execute("COMMIT")
    assert ["1", "4"] == payloads(path)


@each_mode
def test_a_claim_is_like_any_other_once_it_is_committed(
    connect: Callable[..., sqlite3.Connection], options: dict[str, Any], store: alkstore.Store, path: Path
) -> None:
    """Also where the driver has a transaction open at any time; and what is refused takes no lock in it."""
    connection = connect(**options)
    queue = store.queue("q")
    queue.enqueue_many(["rolled back", "acked", "cancelled"])
    within = store.join(connection).queue("q")

    def claim() -> alkstore.JobHandle:
        handle = within.claim_one("w")
        assert handle is not None
        return handle

    rolled_back = claim()
    connection.rollback()
    assert not rolled_back.ack()
    queue.enqueue("nobody keeps the write lock", delay=1_000)
    connection.rollback()  # where a transaction is always open, the question has begun to read in it
    handles = [claim(), claim()]
    connection.commit()
    assert handles[0].ack()
    assert queue.cancel(handles[1].id)
    assert not handles[1].ack()
    queue.enqueue("nor now", delay=1_000)
    connection.rollback()
    assert 2 == queue.stats().scheduled
    assert 1 == queue.stats().ready


def test_joining_reads_nothing(connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path) -> None:
    """Or a transaction that has begun could write no more, once another has committed (T-6)."""
    connection = connect(isolation_level=None)
    connection.execute("BEGIN")
    joined = store.join(connection)
    store.queue("q").enqueue("another's")
    joined.queue("q").enqueue("its own")
    connection.execute("COMMIT")
    assert 2 == len(payloads(path))


def test_reading_begins_nothing(connect: Callable[..., sqlite3.Connection], store: alkstore.Store) -> None:
    """So that reading first can't make a later write fail."""
    connection = connect()
    queue = store.join(connection).queue("q")
    assert None is queue.get_job(1)
    assert [] == queue.jobs()
    queue.stats()
    assert not connection.in_transaction
    store.queue("q").enqueue("others write meanwhile")
    queue.enqueue("and it works")
    connection.commit()
    assert 2 == store.queue("q").stats().ready


def test_nothing_of_the_applications_is_committed_or_rolled_back(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store
) -> None:
    """Whatever is done within its transaction, SQLite is asked for savepoints at most."""
    connection = connect(isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    said: list[str] = []
    connection.set_trace_callback(said.append)
    joined = store.join(connection)
    queue = joined.queue("q")
    queue.enqueue_many(range(2_500))
    handles = queue.claim_batch("w", 5)
    assert [True] * 5 == [
        step() for step in (handles[0].ack, handles[1].retry, handles[2].fail, handles[3].release, handles[4].heartbeat)
    ]
    queue.sweep_expired()
    queue.purge("pending")
    with pytest.raises(ZeroDivisionError), joined.transaction():
        queue.enqueue(1 // 0)
    connection.set_trace_callback(None)
    words = {statement.split()[0] for statement in said}
    assert words <= {"SAVEPOINT", "RELEASE", "ROLLBACK", "INSERT", "UPDATE", "DELETE", "SELECT", "WITH", "PRAGMA", "--"}
    assert all(statement.startswith("ROLLBACK TO ") for statement in said if statement.startswith("ROLLBACK"))
    connection.execute("ROLLBACK")


def test_an_applications_open_transaction_survives_opening_and_joining(path: Path) -> None:
    """Its row and the job are rolled back together, by one rollback of its own."""
    alkstore.open(url_of(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (n)")
        connection.execute("INSERT INTO mine VALUES (1)")
        with alkstore.open(url_of(path)) as store:
            joined = store.join(connection)
            assert connection.in_transaction
            joined.queue("q").enqueue("job")
        assert connection.in_transaction
        connection.rollback()
        assert [] == look(path, "SELECT payload FROM alkstore_jobs UNION ALL SELECT n FROM mine")
        connection.execute("INSERT INTO mine VALUES (2)")
        with alkstore.open(url_of(path)) as store:
            store.join(connection).queue("q").enqueue("job")
        connection.commit()
    assert [2] == look(path, "SELECT n FROM mine")
    assert ['"job"'] == payloads(path)


# --- settings of the connection ---------------------------------------------------------------------------------------


class Odd(sqlite3.Connection):
    """A connection that hands out cursors of its own, and wants nobody to call its execute."""

    def cursor(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the application's own cursors are its own")

    def execute(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the application's own methods are its own")

    executemany = execute


def decoded(data: bytes) -> str:
    """Decode a text, as ``str`` would."""
    return data.decode("utf-8")


def upper(data: bytes) -> str:
    """Make another text of it."""
    return data.decode("utf-8").upper()


def ascii_only(data: bytes) -> str:
    """Fail for most texts."""
    return data.decode("ascii")


def only(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, object]:
    """Make of a row what the library can't read."""
    return {"only": row}


@pytest.mark.parametrize("text_factory", [str, bytes, bytearray, decoded], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, only], ids=["none", "Row", "dict"])
def test_factories_and_classes_of_the_connection_do_not_matter(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, text_factory: Any, row_factory: Any
) -> None:
    """What comes of it is what comes on a plain connection; and they are as they were."""
    plain = work_through(store, connect())
    connection = connect(factory=Odd, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
    connection.text_factory, connection.row_factory = text_factory, row_factory
    assert plain == work_through(store, connection)
    assert [] == store.queues()
    assert text_factory is connection.text_factory
    assert row_factory is connection.row_factory
    assert "" == connection.isolation_level
    assert results_through(store, connect()) == results_through(store, connection)


@pytest.mark.parametrize("kind", ["INTEGER", "TEXT", "BLOB"])
@pytest.mark.parametrize("text_factory", [str, bytes], ids=lambda kind: kind.__name__)
def test_converters_of_the_application_are_not_asked(
    connect: Callable[..., sqlite3.Connection],
    store: alkstore.Store,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    text_factory: Any,
) -> None:
    """They go by the types that columns are declared with: what the library reads has none."""

    def convert(_: bytes) -> object:
        raise AssertionError("the application's own converters are its own")

    plain = work_through(store, connect())
    monkeypatch.setitem(sqlite3.converters, kind, convert)
    connection = connect(detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
    connection.text_factory = text_factory
    assert plain == work_through(store, connection)


def test_temporary_tables_of_the_same_names_do_not_matter(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path
) -> None:
    """SQLite takes them for what is meant wherever a table is named without its schema."""
    plain = work_through(store, connect())
    connection = connect()
    for table in look(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'alkstore%'"):
        connection.execute(f"CREATE TEMPORARY TABLE {table} AS SELECT * FROM main.{table}")
    connection.commit()
    assert plain == work_through(store, connection)
    store.join(connection).queue("q").enqueue(1)
    connection.commit()
    assert ["1"] == payloads(path)


@pytest.mark.parametrize("text_factory", [upper, ascii_only, int], ids=lambda kind: kind.__name__)
def test_a_text_factory_that_makes_other_texts_is_refused(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, text_factory: Any
) -> None:
    """When it is joined, and when it is set later."""
    connection = connect()
    joined = store.join(connection)
    connection.text_factory = text_factory
    with pytest.raises(ValidationError, match="text_factory"):
        store.join(connection)
    with pytest.raises(ValidationError, match="text_factory"):
        joined.queue("q").claim_one("w")
    connection.text_factory = str
    joined.queue("q").enqueue(1)
    connection.rollback()


def test_the_connections_settings_are_left_as_they_are(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store
) -> None:
    connection = connect(timeout=1.5)
    pragmas = ("synchronous", "busy_timeout", "cache_spill", "foreign_keys", "journal_size_limit", "query_only")

    def settings() -> list[object]:
        return [connection.execute(f"PRAGMA {name}").fetchone() for name in pragmas]

    before = settings()
    work_through(store, connection)
    assert before == settings()


# --- which database it is ---------------------------------------------------------------------------------------------


def test_another_database_is_refused_before_anything_is_written(store: alkstore.Store, path: Path) -> None:
    """Also one with a schema of alkstore's own in it, one in memory, and one that has the store's attached."""
    other = path.with_name("other.db")
    alkstore.open(url_of(other)).close()
    for name, attach in ((str(other), False), (":memory:", False), ("", False), (str(other), True)):
        with closing(sqlite3.connect(name)) as connection:
            if attach:
                connection.execute("ATTACH ? AS store", (str(path),))
            with pytest.raises(ValidationError, match=r"the store's own database, sqlite:///"):
                store.join(connection)
            assert not connection.in_transaction
    assert [] == look(other, "SELECT id FROM alkstore_jobs")


def test_the_same_file_by_another_name_is_the_same(store: alkstore.Store, path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with closing(sqlite3.connect(f"file:{link}?mode=rw", uri=True)) as connection:
        store.join(connection).queue("q").enqueue(1)
        connection.commit()
    assert ["1"] == payloads(path)


def test_a_connection_of_another_thread_is_refused(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store
) -> None:
    """The driver lets no other use it, unless told to."""
    connection, free = connect(), connect(check_same_thread=False)

    def elsewhere() -> None:
        with pytest.raises(TransactionError, match="here and now"):
            store.join(connection)
        store.join(free).queue("q").enqueue(1)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(elsewhere).result(WAIT)
    free.rollback()


def test_a_store_in_memory_cannot_be_joined() -> None:
    """It says so in its capabilities."""
    with alkstore.open("sqlite:///:memory:") as store, closing(sqlite3.connect(":memory:")) as connection:
        assert not store.capabilities.join
        with pytest.raises(NotSupportedError, match="'join'"):
            store.join(connection)


def test_a_connection_that_may_not_write_is_an_error_of_ours(store: alkstore.Store, path: Path) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        joined = store.join(connection)
        assert [] == joined.queue("q").jobs()
        with pytest.raises(alkstore.EngineUnavailableError):
            joined.queue("q").enqueue(1)


# --- waiting for the write lock ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", ["nothing", "BEGIN"])
def test_it_waits_for_another_writer(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path, begun: str
) -> None:
    """In the engine's own line, once the driver's busy timeout is over; also within a transaction that only began."""
    connection = connect(isolation_level=None, check_same_thread=False)
    done: list[int] = []

    def enqueue() -> None:
        if begun != "nothing":
            connection.execute(begun)
        done.append(store.join(connection).queue("q").enqueue("waited"))

    with back_door(path) as other:
        other.execute("CREATE TABLE others (n)")
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO others VALUES (1)")
        thread = threading.Thread(target=enqueue)
        thread.start()
        line = path.with_name(path.name + "-alkstore-line")
        wait_until(line.exists, WAIT, "the joined connection to stand in the line")
        assert [] == done
        other.execute("COMMIT")
        thread.join(WAIT)
    assert [1] == done
    if begun != "nothing":
        connection.execute("COMMIT")
    assert ['"waited"'] == payloads(path)


def test_a_lock_that_does_not_come_is_busy_and_the_transaction_goes_on(
    connect: Callable[..., sqlite3.Connection], path: Path
) -> None:
    """After ``lock_timeout``; what the application had open is still open, and works once the lock is free."""
    with alkstore.open(url_of(path), lock_timeout=0.2) as store, back_door(path) as other:
        connection = connect()
        joined = store.join(connection)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EngineBusyError, match=r"0\.2 s"):
            joined.queue("q").enqueue(1)
        assert not connection.in_transaction
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM alkstore_jobs").fetchall()
        with pytest.raises(EngineBusyError):
            joined.queue("q").enqueue(2)
        assert connection.in_transaction
        other.execute("ROLLBACK")
        joined.queue("q").enqueue(3)
        connection.commit()
    assert ["3"] == payloads(path)


def test_a_deferred_transaction_that_has_read_an_old_state_is_told_how_to_begin(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path
) -> None:
    """T-6: at once, without waiting, and naming both SQLite's and Django's way."""
    connection = connect()
    connection.execute("BEGIN")
    joined = store.join(connection)
    assert [] == joined.queue("q").jobs()
    store.queue("q").enqueue("another writer")
    with pytest.raises(EngineBusyError, match=r"BEGIN IMMEDIATE.*transaction_mode"):
        joined.queue("q").enqueue(1)
    assert connection.in_transaction
    connection.rollback()
    joined.queue("q").enqueue(2)
    connection.commit()
    assert ['"another writer"', "2"] == payloads(path)


def test_who_has_the_write_lock_does_not_wait_behind_those_who_wait_for_it(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store
) -> None:
    """The store's other threads stand in the line for the application's transaction to end; that goes on."""
    connection = connect()
    queue = store.join(connection).queue("q")
    queue.enqueue("first")
    waiting = threading.Thread(target=store.queue("q").enqueue, args=["of another thread"])
    waiting.start()
    writers = pool_of(store).writers
    wait_until(writers._mutex.lock.locked, WAIT, "the other thread to wait")
    queue.enqueue("second")
    queue.enqueue_many(range(2_500))
    connection.commit()
    waiting.join(WAIT)
    assert 2_503 == store.queue("q").stats().ready


def test_another_process_commits_between_reading_and_enqueueing(
    store: alkstore.Store, path: Path, connect: Callable[..., sqlite3.Connection]
) -> None:
    """T-6: nothing is 'locked', neither in the store's own transaction nor on a connection that only read."""
    with Program("enqueue_when_told", path) as program:
        assert "ready" == program.hear()
        connection = connect()
        joined = store.join(connection)
        assert None is joined.queue("q").get_job(1)
        program.tell()
        assert "done" == program.hear()
        joined.queue("q").enqueue("joined")
        connection.commit()
        with store.transaction() as tx:
            assert tx.queue("q").get_job(2) is not None
            program.tell()  # it waits for its turn
            tx.queue("q").enqueue("own")
        assert "done" == program.hear()
        program.tell("end")
        program.finish()
    assert 4 == len(payloads(path))


# --- failures ---------------------------------------------------------------------------------------------------------


def test_an_operation_that_fails_half_way_is_undone_and_the_rest_kept(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path
) -> None:
    """The disk is full in the middle of many jobs: none of them is there, and the application's row is."""
    connection = connect()
    connection.execute("CREATE TABLE mine (n)")
    connection.commit()
    joined = store.join(connection)
    connection.execute("INSERT INTO mine VALUES (1)")
    joined.queue("q").enqueue("before")
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(StorageFullError):
        joined.queue("q").enqueue_many(["x" * 1_000] * 3_000)
    connection.execute("PRAGMA max_page_count = 1000000")
    if connection.in_transaction:
        joined.queue("q").enqueue("after")
        connection.commit()
        assert ['"before"', '"after"'] == payloads(path)
        assert [1] == look(path, "SELECT n FROM mine")
    else:  # SQLite may roll all of it back by itself
        assert [] == payloads(path)
    assert is_sound(path)


def test_a_transaction_that_ends_within_a_savepoint_is_an_error_of_ours(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store
) -> None:
    connection = connect()
    joined = store.join(connection)

    def block() -> None:
        with joined.transaction() as inner:
            inner.queue("q").enqueue(1)
            connection.rollback()

    with pytest.raises(TransactionError, match="ended"):
        block()
    assert 0 == store.queue("q").stats().ready


@pytest.mark.parametrize("auto_commit", [False, True])
def test_a_connection_that_is_closed_in_the_middle_hides_no_exception(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path, auto_commit: bool
) -> None:
    """Within a savepoint, and by what gives the jobs of a batch: the exception of the block is the one to go up."""
    joined = store.join(connection := connect())
    joined.queue("q").enqueue(1)
    with pytest.raises(ZeroDivisionError), joined.transaction():
        connection.close()
        _ = 1 // 0
    joined = store.join(connection := connect())
    joined.queue("q").enqueue(1)
    with pytest.raises(TransactionError), joined.transaction():
        connection.close()
    another = connect(isolation_level=None if auto_commit else "")

    def items() -> Iterator[int]:
        yield 1
        another.close()
        yield 2

    with pytest.raises(TransactionError):
        store.join(another).queue("q").enqueue_many(items())
    assert [] == payloads(path)
    with pytest.raises(TransactionError, match="closed"):
        joined.queue("q").enqueue(2)


def test_a_committed_claim_is_acked_beside_a_transaction_that_reads(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path
) -> None:
    """An explicit one, as the driver begins none for reading."""
    store.queue("q").enqueue(1)
    connection = connect()
    handle = store.join(connection).queue("q").claim_one("w")
    assert handle is not None
    connection.commit()
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM alkstore_jobs").fetchone()
    assert handle.ack()
    connection.rollback()
    assert [] == payloads(path)


@pytest.mark.parametrize("isolation_level", ["", None])
def test_what_a_write_returns_is_to_be_read_first(
    connect: Callable[..., sqlite3.Connection], store: alkstore.Store, path: Path, isolation_level: str | None
) -> None:
    """SQLite could neither commit nor undo the operation without it: it is refused at once, and the write stays as it is."""
    connection = connect(isolation_level=isolation_level)
    connection.execute("CREATE TABLE mine (n INTEGER)")
    joined = store.join(connection)
    cursor = connection.execute("INSERT INTO mine VALUES (1), (2) RETURNING n")
    for call in (lambda: joined.queue("q").enqueue(1), lambda: joined.queue("q").claim_one("w")):
        with pytest.raises(TransactionError, match="read that first"):
            call()
    assert [(1,), (2,)] == cursor.fetchall()
    joined.queue("q").enqueue(2)
    connection.commit()
    assert ["2"] == payloads(path)
    assert [1, 2] == look(path, "SELECT n FROM mine")
