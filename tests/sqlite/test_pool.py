"""Connections are borrowed, shared and given back (S-3, S-4, Z-12)."""

from __future__ import annotations

import threading

import pytest

import alkstore
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
    assert {borrowed} == pool._open
    assert (1,) == borrowed.execute("SELECT 1").fetchone()
    pool.give(borrowed)
    assert set() == pool._open
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
