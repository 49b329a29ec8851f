"""The pool: how many connections, who gets one, and for how long they are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from alkstore.errors import EngineBusyError, EngineUnavailableError, StoreClosedError
from alkstore_postgres.location import locate
from alkstore_postgres.pool import Connection, Pool
from tests.postgres.door import Door, line_of
from tests.support.waiting import wait_until

WAIT = 60

MakePool = Callable[..., Pool]


@pytest.fixture
def make_pool(database: str) -> Iterator[MakePool]:
    pools: list[Pool] = []

    def make(patience: float = 30, **options: object) -> Pool:
        pools.append(Pool(locate(database, options), "full", round(patience * 1_000_000)))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
        for connection in pool._connections():  # what the test has kept
            pool.release(connection)


def test_a_connection_is_used_again(make_pool: MakePool) -> None:
    """The one that was used last, so that a quiet store keeps few of them warm."""
    pool = make_pool()
    one, two = pool.acquire(), pool.acquire()
    pool.release(one)
    pool.release(two)
    assert pool.acquire() is two
    assert pool.acquire() is one


def test_there_are_never_more_than_pool_size(make_pool: MakePool, door: Door) -> None:
    """And after lock_timeout whoever waits is told that all are in use."""
    pool = make_pool(patience=0.1, pool_size=2)
    held = [pool.acquire(), pool.acquire()]
    with pytest.raises(EngineBusyError, match="pool_size"):
        pool.acquire()
    assert len(door.sessions()) == 2
    pool.release(held[0])
    assert pool.acquire() is held[0]


def test_those_who_wait_are_served_in_turn(make_pool: MakePool) -> None:
    pool = make_pool(pool_size=1)
    held = pool.acquire()
    order: list[int] = []

    def work(number: int) -> None:
        connection = pool.acquire()
        order.append(number)
        pool.release(connection)

    threads: list[threading.Thread] = []
    for number in range(5):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        wait_until(lambda number=number: line_of(pool) == number + 1, WAIT, "the thread to join the line")
    pool.release(held)
    for thread in threads:
        thread.join(WAIT)
    assert order == [0, 1, 2, 3, 4]


def test_whoever_waits_gets_the_place_of_a_connection_that_broke(make_pool: MakePool) -> None:
    pool = make_pool(pool_size=1)
    held = pool.acquire()
    got: list[Connection] = []
    waiter = threading.Thread(target=lambda: got.append(pool.acquire()))
    waiter.start()
    wait_until(lambda: line_of(pool), WAIT, "the thread to join the line")
    pool.discard(held)
    waiter.join(WAIT)
    assert got[0] is not held
    assert got[0].execute("SELECT 1").fetchone() == (1,)
    pool.release(got[0])


def test_giving_a_connection_back_twice_counts_once(make_pool: MakePool) -> None:
    pool = make_pool(pool_size=1, patience=0.1)
    connection = pool.acquire()
    pool.discard(connection)
    pool.discard(connection)
    pool.release(connection)
    again = pool.acquire()
    with pytest.raises(EngineBusyError):
        pool.acquire()
    pool.release(again)


@pytest.mark.parametrize("state", ["in a transaction", "aborted", "copying", "closed", "not in auto-commit"])
def test_a_connection_comes_back_idle_or_not_at_all(make_pool: MakePool, door: Door, state: str) -> None:
    pool = make_pool(pool_size=1)
    connection = pool.acquire()
    if state in ("in a transaction", "aborted"):
        connection.execute("BEGIN")
        if state == "aborted":
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT nosuch")
    elif state == "copying":
        connection.pgconn.exec_(b"COPY (SELECT 1) TO STDOUT")
    elif state == "closed":
        connection.close()
    else:
        connection.autocommit = False
    pool.release(connection)
    again = pool.acquire()
    assert (again is connection) == (state in ("in a transaction", "aborted"))
    assert again.execute("SELECT 1").fetchone() == (1,)
    pool.release(again)
    wait_until(lambda: [found for _, found in door.sessions()] == ["idle"], WAIT, "one idle session and no other")


def test_an_old_connection_is_replaced(make_pool: MakePool) -> None:
    """``max_lifetime``, with nothing in use cut off."""
    pool = make_pool(max_lifetime=0.000001)
    one = pool.acquire()
    assert one.execute("SELECT 1").fetchone() == (1,)
    pool.release(one)
    two = pool.acquire()
    assert two is not one
    assert one.closed
    pool.release(two)


def test_idle_ones_beyond_need_are_closed_in_time(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever gives one back: there is no thread for it."""
    pool = make_pool()
    held = [pool.acquire() for _ in range(3)]
    for connection in held:
        pool.release(connection)
    monkeypatch.setattr("alkstore_postgres.pool._MAX_IDLE", 0.0)
    for _ in range(3):
        pool.release(pool.acquire())
    assert sum(connection.closed for connection in held) == 2


def test_a_failure_to_connect_frees_the_place(database: str) -> None:
    pool = Pool(locate(database.replace("127.0.0.1", "host.invalid"), {"pool_size": 1}), "full", 100_000)
    for _ in range(3):
        with pytest.raises(EngineUnavailableError):
            pool.acquire()
    pool.close()


def test_a_closed_pool_hands_out_nothing(make_pool: MakePool, door: Door) -> None:
    """What is idle is closed with it, what is in use is cut off after a moment, and whoever comes is told."""
    pool = make_pool(pool_size=2)
    held, idle = pool.acquire(), pool.acquire()
    pool.release(idle)
    pool.close()
    assert idle.closed
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")
    pool.release(held)
    assert held.closed
    with pytest.raises(StoreClosedError):
        pool.acquire()


def test_many_threads_share_few_connections(make_pool: MakePool, door: Door) -> None:
    """With some that break: none is lost, none is used by two."""
    pool = make_pool(pool_size=3)
    in_use: set[Connection] = set()
    guard = threading.Lock()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                connection = pool.acquire(fresh=turn % 10 == number)
                with guard:
                    assert connection not in in_use
                    in_use.add(connection)
                    assert len(in_use) <= 3
                connection.execute("SELECT 1")
                with guard:
                    in_use.remove(connection)
                if turn % 7 == number:
                    pool.discard(connection)
                else:
                    pool.release(connection)
        except BaseException as exc:
            failures.append(exc)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert failures == []
    assert len(pool._slots) == len(pool._idle) == len(pool._connections()) <= 3
