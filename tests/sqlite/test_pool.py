"""Connections are borrowed, shared and given back (S-3, S-4, Z-12)."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite.engine import AutoCommit
from alkstore_sqlite.executor import Units
from tests.sqlite.conftest import Opener
from tests.sqlite.support import pool_of
from tests.support.waiting import wait_until


def test_a_lone_thread_uses_one_connection(store: alkstore.Store) -> None:
    for number in range(20):
        store.queue("q").enqueue(number)
        store.queue("q").stats()
    with store.transaction() as tx:
        tx.queue("q").enqueue(1)
    assert 1 == len(pool_of(store)._open)


def test_the_last_one_given_back_is_taken_first(store: alkstore.Store) -> None:
    pool = pool_of(store)
    first, second = pool.take(), pool.take()
    pool.give(first)
    pool.give(second)
    assert pool.take() is second
    assert pool.take() is first
    pool.give(first)
    pool.give(second)


def test_no_more_than_pool_size_are_opened(open_store: Opener) -> None:
    store = open_store(pool_size=2, lock_timeout=0.05)
    pool = pool_of(store)
    taken = [pool.take(), pool.take()]
    with pytest.raises(alkstore.EngineBusyError, match="2 are in use"):
        store.queue("q").stats()
    pool.give(taken.pop())
    assert 0 == store.queue("q").stats().ready
    pool.give(taken.pop())
    assert 2 == len(pool._open)


def test_a_new_connection_never_makes_the_file_anew(path: Path, store: alkstore.Store) -> None:
    """Somebody has deleted the file under the store: an empty one in its place would hide that."""
    pool = pool_of(store)
    first = pool.take()
    path.unlink()
    with pytest.raises(alkstore.EngineUnavailableError):
        pool.take()
    assert not path.exists()
    pool.give(first)


def test_those_who_wait_are_served_in_order(open_store: Opener) -> None:
    pool = pool_of(open_store(pool_size=1, lock_timeout=30))
    only, order = pool.take(), list[int]()

    def use(number: int) -> None:
        units = pool.take()
        order.append(number)
        pool.give(units)

    threads: list[threading.Thread] = []
    for number in range(5):
        threads.append(threading.Thread(target=use, args=(number,)))
        threads[-1].start()
        wait_until(lambda count=number + 1: len(pool._waiting) == count, 10, "the thread to wait")
    pool.give(only)
    for thread in threads:
        thread.join(30)
    assert [*range(5)] == order


def test_a_discarded_connection_makes_room_for_another(open_store: Opener) -> None:
    pool = pool_of(open_store(pool_size=1, lock_timeout=30))
    only, others = pool.take(), list[Units]()
    thread = threading.Thread(target=lambda: others.append(pool.take()))
    thread.start()
    wait_until(lambda: pool._waiting, 10, "the thread to wait")
    pool.discard(only)
    thread.join(30)
    assert [only] != others
    pool.give(others[0])


def test_closing_closes_what_is_idle_and_later_what_was_borrowed(open_store: Opener) -> None:
    store = open_store(pool_size=2)
    pool = pool_of(store)
    borrowed = pool.take()
    store.queue("q").stats()
    store.close()
    assert [borrowed] == list(pool._open)
    assert (1,) == borrowed.execute("SELECT 1").fetchone()
    pool.give(borrowed)
    assert [] == list(pool._open)
    with pytest.raises(alkstore.StoreClosedError):
        pool.take()


def test_closing_ends_the_wait_for_a_connection(open_store: Opener) -> None:
    store, errors = open_store(pool_size=1, lock_timeout=60), list[str]()
    pool = pool_of(store)
    only = pool.take()

    def wait() -> None:
        try:
            pool.take()
        except alkstore.StoreClosedError:
            errors.append("closed")

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(pool._waiting) == 3, 10, "the threads to wait")
    store.close()
    for thread in threads:
        thread.join(30)
    assert ["closed"] * 3 == errors
    pool.give(only)


ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
ONE_THEN_ENDLESS = f"SELECT 0 UNION ALL SELECT * FROM ({ENDLESS.format('count(*)')})"


@pytest.mark.parametrize("how", ["execute", "fetchone", "iterate", "many statements", "rows without end"])
def test_closing_interrupts_a_statement_of_a_transaction(open_store: Opener, how: str) -> None:
    """Without it, none of these would end at all."""
    store, other, inside, errors = open_store(), open_store(), threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            with store.transaction() as tx:
                tx.queue("q").enqueue(1)
                tx.execute("SELECT 1").connection.create_function("inside", 0, inside.set)
                tx.execute("SELECT inside()").fetchone()
                if how == "execute":
                    tx.execute(ENDLESS.format("count(*)"))
                elif how == "fetchone":
                    tx.execute(ONE_THEN_ENDLESS).fetchmany(2)
                elif how == "iterate":
                    for _ in tx.execute(ONE_THEN_ENDLESS):
                        pass
                elif how == "rows without end":
                    for _ in tx.execute(ENDLESS.format("x")):
                        pass
                while True:
                    tx.execute("SELECT 1").fetchone()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, it is looked at below
            errors.append(exc)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(30)
    store.close()
    thread.join(30)
    assert not thread.is_alive()
    assert ["StoreClosedError"] == [type(error).__name__ for error in errors]
    assert [] == list(pool_of(store)._open)
    assert 1 == other.queue("q").enqueue("nothing of it was committed, and the lock is free")


@pytest.mark.parametrize("kind", ["read", "write"])
def test_closing_interrupts_an_auto_commit_statement(open_store: Opener, kind: str) -> None:
    store, other, inside, errors = open_store(), open_store(), threading.Event(), list[BaseException]()

    def unit(units: Units) -> None:
        units.connection.create_function("inside", 0, inside.set)
        if kind == "write":
            units.execute("CREATE TABLE effects (x)")
        units.execute("SELECT inside()").fetchone()
        units.execute(ENDLESS.format("count(*)"))

    def work() -> None:
        executor = AutoCommit(pool_of(store))
        try:
            (executor.read if kind == "read" else executor.write)(unit)
        except alkstore.AlkstoreError as exc:
            errors.append(exc)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(30)
    store.close()
    thread.join(30)
    assert ["StoreClosedError"] == [type(error).__name__ for error in errors]
    assert [] == list(pool_of(store)._open)
    assert 1 == other.queue("q").enqueue("the lock is free")


def test_closing_is_not_held_up_by_what_cannot_be_interrupted(open_store: Opener) -> None:
    """A Python function that a statement calls: the transaction's own thread rolls back once it comes out."""
    store, inside, closed, errors = open_store(), threading.Event(), threading.Event(), list[str]()

    def stay() -> int:
        inside.set()
        closed.wait()
        return 1

    def work() -> None:
        try:
            with store.transaction() as tx:
                tx.queue("q").enqueue(1)
                tx.execute("SELECT 1").connection.create_function("stay", 0, stay)
                tx.execute("SELECT stay()").fetchone()
        except alkstore.StoreClosedError:
            errors.append("closed")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    store.close()
    closed.set()
    thread.join(30)
    assert ["closed"] == errors
    assert [] == list(pool_of(store)._open)
    assert 1 == open_store().queue("q").enqueue("the lock is free")


def test_an_interrupt_that_is_not_ours_comes_out_bare(store: alkstore.Store) -> None:
    with store.transaction() as tx:
        connection = tx.execute("SELECT 1").connection
        connection.create_function("interrupt", 0, connection.interrupt)
        with pytest.raises(sqlite3.OperationalError) as caught:
            tx.execute(ONE_THEN_ENDLESS.replace("0", "interrupt()")).fetchall()
        assert "SQLITE_INTERRUPT" == caught.value.sqlite_errorname
        tx.queue("q").enqueue("the transaction goes on")
    assert 1 == store.queue("q").stats().ready


def test_a_function_that_a_statement_calls_may_use_the_transaction(store: alkstore.Store) -> None:
    with store.transaction() as tx:

        def enqueue(payload: int) -> int:
            return tx.queue("q").enqueue(payload)

        tx.execute("SELECT 1").connection.create_function("enqueue", 1, enqueue)
        assert [(1,), (2,)] == tx.execute("SELECT enqueue(x) FROM (SELECT 7 AS x UNION ALL SELECT 8)").fetchall()
    assert [7, 8] == [job.payload for job in store.queue("q").jobs()]


def test_closing_rolls_back_a_transaction_that_another_thread_has_open(open_store: Opener) -> None:
    store, begun, closed, errors = open_store(), threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        try:
            with store.transaction() as tx:
                tx.queue("q").enqueue(1)
                begun.set()
                closed.wait()
                tx.queue("q").enqueue(2)
        except alkstore.StoreClosedError:
            errors.append("closed")

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    store.close()
    closed.set()
    thread.join(30)
    assert ["closed"] == errors
    assert 0 == open_store().queue("q").stats().ready
    assert 1 == open_store().queue("q").enqueue(3)
