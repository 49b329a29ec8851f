"""What SQLite does to a transaction by itself, and what an application does to it (T-1, T-5, T-6)."""

from __future__ import annotations

import gc
import sqlite3
import threading
from pathlib import Path

import pytest

import alkstore
from tests.sqlite.conftest import Opener
from tests.sqlite.support import back_door, look, pool_of


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_was_ended_by_hand_refuses_use(store: alkstore.Store, end: str) -> None:

    def work() -> None:
        with store.transaction() as tx:
            tx.queue("q").enqueue(1)
            tx.execute(end)
            tx.queue("q").enqueue("never outside of a transaction")

    with pytest.raises(alkstore.TransactionError):
        work()
    assert (1 if end == "COMMIT" else 0) == store.queue("q").stats().ready
    with store.transaction() as tx:
        tx.queue("q").enqueue(2)


def test_a_cursor_is_closed_with_its_transaction_and_pins_nothing(path: Path, store: alkstore.Store) -> None:
    store.queue("q").enqueue_many(range(1_000))
    with store.transaction() as tx:
        cursor = tx.execute("SELECT id FROM alkstore_jobs")
        assert (1,) == cursor.fetchone()
    with pytest.raises(sqlite3.ProgrammingError):
        cursor.fetchone()
    with back_door(path) as connection:
        connection.execute("DELETE FROM alkstore_jobs WHERE id > 10")
    assert 10 == store.queue("q").stats().ready
    assert 1_001 == store.queue("q").enqueue("the connection sees the present")


def test_an_unread_insert_returning_does_not_keep_a_transaction_from_committing(
    path: Path, store: alkstore.Store
) -> None:
    with store.transaction() as tx:
        tx.execute("CREATE TABLE effects (x)")
        cursor = tx.execute("INSERT INTO effects VALUES (1), (2) RETURNING x")
    assert cursor is not None
    assert [1, 2] == look(path, "SELECT x FROM effects")


def test_rows_that_are_not_read_yet_stand_in_the_way_of_no_savepoint(store: alkstore.Store) -> None:
    with store.transaction() as tx:
        tx.execute("CREATE TABLE effects (x)")
        with tx.transaction():
            first = tx.execute("INSERT INTO effects VALUES (1), (2), (3), (4), (5) RETURNING x")
            assert (1,) == first.fetchone()
        with tx.transaction():
            assert [(2,), (3,)] == first.fetchmany(2)
        assert (4,) == next(first)
        assert [(5,)] == first.fetchall()
        assert ([], None, []) == (first.fetchmany(), first.fetchone(), list(first))
        second = tx.execute("UPDATE effects SET x = -x RETURNING x")
        assert [(-1,), (-2,), (-3,), (-4,), (-5,)] == list(second)
        third = tx.execute("DELETE FROM effects RETURNING x")
    with pytest.raises(sqlite3.ProgrammingError):
        third.fetchone()


def test_a_connection_that_is_left_with_an_old_snapshot_is_replaced(path: Path, store: alkstore.Store) -> None:
    """An application got at the connection behind the cursor, and left a result half read on it."""
    store.queue("q").enqueue_many(range(1_000))
    with store.transaction() as tx:
        mine = tx.execute("SELECT 1").connection.cursor()
        mine.execute("SELECT id FROM alkstore_jobs")
        mine.fetchone()
    with back_door(path) as connection:
        connection.execute("DELETE FROM alkstore_jobs WHERE id > 10")
    assert 1_001 == store.queue("q").enqueue("not refused for the stale snapshot")
    with pytest.raises(sqlite3.ProgrammingError):
        mine.fetchone()


def test_reading_first_and_writing_later_never_fails_for_another_writer(path: Path, open_store: Opener) -> None:
    first, second = open_store(), open_store(lock_timeout=0.05)
    with first.transaction() as tx:
        assert 0 == tx.queue("q").stats().ready
        with pytest.raises(alkstore.EngineBusyError):
            second.queue("q").enqueue("waits its turn")
        tx.queue("q").enqueue("and is never refused")
    assert 1 == first.queue("q").stats().ready


def test_a_savepoint_heals_a_transaction_in_which_an_operation_failed(store: alkstore.Store) -> None:
    with store.transaction() as tx:
        tx.queue("q").enqueue("kept")
        tx.execute("PRAGMA query_only = ON")
        with pytest.raises(alkstore.EngineUnavailableError), tx.transaction():
            tx.queue("q").enqueue("refused by SQLite")
        tx.execute("PRAGMA query_only = OFF")
        tx.queue("q").enqueue("kept as well")
    assert ["kept", "kept as well"] == [job.payload for job in store.queue("q").jobs()]


def test_an_operation_that_failed_takes_the_transaction_with_it(store: alkstore.Store) -> None:

    def work() -> None:
        with store.transaction() as tx:
            tx.queue("q").enqueue("not kept")
            tx.execute("PRAGMA query_only = ON")
            with pytest.raises(alkstore.EngineUnavailableError):
                tx.queue("q").enqueue("refused by SQLite")
            tx.execute("PRAGMA query_only = OFF")

    with pytest.raises(alkstore.TransactionError):
        work()
    assert 0 == store.queue("q").stats().ready


@pytest.mark.parametrize("method", ["hold", "let_go", "give_from"])
def test_an_interrupt_on_the_way_in_or_out_keeps_no_lock(
    store: alkstore.Store, open_store: Opener, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A Ctrl-C, or the time limit that a worker sets itself by a signal."""
    pool, struck = pool_of(store), list[str]()

    def interrupt(*arguments: object) -> None:
        if not struck:
            struck.append(method)
            raise KeyboardInterrupt
        getattr(type(pool), method)(pool, *arguments)

    def work() -> None:
        with store.transaction() as tx:
            tx.queue("q").enqueue("one")

    with monkeypatch.context() as patch:
        patch.setattr(pool, method, interrupt)
        with pytest.raises(KeyboardInterrupt):
            work()
    gc.collect()  # Python 3.13 warns of a connection that is left to the collector and open
    other = open_store(lock_timeout=1)
    assert other.queue("q").enqueue("the lock is free") == other.queue("q").stats().ready
    store.queue("q").enqueue("and the mutex")


def test_a_refused_commit_is_repeated_and_not_lost(store: alkstore.Store) -> None:
    """COMMIT is refused while a statement that writes is unfinished; here an application finishes it meanwhile."""
    writers = pool_of(store).writers
    turn = writers.turn()
    units = writers.begin(turn)
    units.execute("CREATE TABLE effects (x)")
    unread = units.execute("INSERT INTO effects VALUES (1), (2) RETURNING x")
    unread.fetchone()
    with pytest.raises(sqlite3.OperationalError, match="in progress"):
        units.execute("COMMIT")
    timer = threading.Timer(0.05, unread.close)
    timer.start()
    writers.commit(turn)
    timer.join()
    with store.transaction() as tx:
        assert [(1,), (2,)] == tx.execute("SELECT x FROM effects").fetchall()


def test_a_commit_refused_to_the_end_of_the_time_allowed_is_rolled_back(open_store: Opener) -> None:
    store = open_store(lock_timeout=0.1)
    writers = pool_of(store).writers
    turn = writers.turn()
    units = writers.begin(turn)
    units.execute("CREATE TABLE effects (x)")
    unread = units.execute("INSERT INTO effects VALUES (1), (2) RETURNING x")
    unread.fetchone()
    with pytest.raises(alkstore.EngineBusyError):
        writers.commit(turn)
    writers.dismiss(turn)
    assert 1 == store.queue("q").enqueue("the lock is free again")
