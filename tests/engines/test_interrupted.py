"""What a signal's handler raises, as Ctrl-C does, comes out as it is wherever in a call it strikes, and costs the store nothing."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from alkstore import doorbell
from alkstore.protocols import Listener
from alkstore.queue import Queue
from alkstore.store import Store
from alkstore_sqlite.locking import Mutex
from alkstore_sqlite.writers import Turn
from contract_tests.interrupting import StruckError, struck_at
from contract_tests.scale import rounds
from tests.harnesses import PostgresHarness, SqliteHarness
from tests.support.waiting import wait_until

WAIT = 30
CONNECTIONS = 2

LOCKED_FOR = 5
"""Seconds that whoever finds a lock taken waits for it: here nobody should."""


KINDS: dict[str, tuple[type[SqliteHarness | PostgresHarness], dict[str, Any]]] = {
    "sqlite": (SqliteHarness, {}),
    "postgresql": (PostgresHarness, {}),
    "postgresql-lent": (PostgresHarness, {"pooler": "transaction"}),
}


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Iterator[tuple[SqliteHarness | PostgresHarness, dict[str, Any]]]:
    """An engine's harness, started, and how to open its stores."""
    made, options = KINDS[request.param]
    harness = made()
    harness.start()
    yield harness, options
    harness.stop()


@pytest.fixture
def place(kind: tuple[SqliteHarness | PostgresHarness, dict[str, Any]]) -> Iterator[Callable[[], Store]]:
    """What opens stores with few connections, all on one place; the collector doesn't come by meanwhile."""
    harness, options = kind
    place = harness.new_place()
    with contextlib.ExitStack() as stores:

        def open_another() -> Store:
            store = harness.open(place, pool_size=CONNECTIONS, lock_timeout=LOCKED_FOR, durability="relaxed", **options)
            return cast(Store, stores.enter_context(store))

        gc.collect()
        gc.disable()
        try:
            yield open_another
        finally:
            gc.enable()
    harness.drop_place(place)


def work(queue: Queue) -> None:
    for handle in queue.claim_batch("w", 2):
        handle.ack()


class UndoneError(Exception):
    """What an application rolls back by."""


def in_transaction(store: Store) -> None:
    with store.transaction() as tx:
        tx.queue("q").enqueue("x")
        with tx.transaction() as savepoint:
            savepoint.queue("q").enqueue("x")


def undone(store: Store) -> None:
    with contextlib.suppress(UndoneError), store.transaction() as tx:
        tx.queue("q").enqueue("x")
        raise UndoneError


def in_a_jobs_transaction(queue: Queue) -> None:
    queue.enqueue("x")
    for handle in queue.claim_batch("w", 1):
        with handle.transaction() as tx:
            tx.queue("q").enqueue("x")


def listen(store: Store) -> None:
    if store.health().wakes == "poll":  # it can't listen
        store.notify("c", "x")
        return
    with store.listen("c") as listener:
        store.notify("c", "x")
        assert listener.get(WAIT) is not None


CALLS: dict[str, Callable[[Queue, Store], object]] = {
    "enqueue": lambda queue, _: queue.enqueue("x"),
    "claim and ack": lambda queue, _: work(queue),
    "read": lambda queue, _: queue.stats(),
    "wait": lambda queue, _: queue.wait(0.001),
    "transaction": lambda _, store: in_transaction(store),
    "rolled back": lambda _, store: undone(store),
    "a job's transaction": lambda queue, _: in_a_jobs_transaction(queue),
    "listen": lambda _, store: listen(store),
}


def check_free(store: Store, other: Store) -> None:
    """Write, and have another connection write, where nobody is to be in the way."""
    store.queue("q").enqueue("y")
    other.queue("q").enqueue("y")


def check_whole(store: Store) -> None:
    """Do something that needs all connections at once, and the write lock."""
    barrier = threading.Barrier(CONNECTIONS)

    def look() -> None:
        store.queue("q").enqueue("y")
        store.queue("q").stats()
        barrier.wait(WAIT)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for done in [threads.submit(look) for _ in range(CONNECTIONS)]:
            done.result(WAIT)


@pytest.mark.parametrize("call", list(CALLS))
def test_whatever_is_raised_on_top_of_a_call_comes_out_and_nothing_is_lost_for_it(
    place: Callable[[], Store], call: str
) -> None:
    """No connection, no lock, no thread: all that others, and the next call, need.

    And no lock from the first moment on, while the exception, and with it all the frames that it came through, are still there.
    """
    store, other = place(), place()
    queue = store.queue("q")
    do = CALLS[call]
    do(queue, store)
    check_whole(store)
    with struck_at(None) as steps:
        do(queue, store)
    assert 10 < steps.taken
    for step in range(0, steps.taken, max(1, steps.taken // rounds(4_000))):
        try:
            with struck_at(step):
                do(queue, store)
        except StruckError:  # the call may take fewer steps this time
            check_free(store, other)
        check_whole(store)


def test_what_is_raised_on_top_of_a_listener_neither_loses_a_notification_nor_has_it_come_twice(
    place: Callable[[], Store],
) -> None:
    store = place()
    if store.health().wakes == "poll":
        return  # it can't listen

    def payloads(listener: Listener, last: str) -> list[str]:
        got: list[str] = []
        while not got or got[-1] != last:
            found = listener.get(WAIT)
            assert found is not None
            got.append(found.payload)
        return got

    with store.listen("c") as listener:
        step, done = 0, False
        while not done:
            sent = [f"{step} {number}" for number in range(3)]
            with store.transaction() as tx:
                for payload in sent:
                    tx.notify("c", payload)
            got: list[str] = []
            try:
                with struck_at(step):
                    found = listener.get(WAIT)
                assert found is not None
                got.append(found.payload)
                done = True  # it took fewer steps
            except StruckError:
                pass
            store.notify("c", "last")
            assert [*sent, "last"] == got + payloads(listener, "last")
            step += 1
        assert 10 < step


def test_what_is_raised_while_a_turn_or_a_consumer_is_made_is_all_that_is_said(
    place: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end comes then, too, with half of it there: an error in that would be printed, for nobody can catch it."""
    store, said = place(), list[object]()
    queue, mutex = store.queue("q"), Mutex()
    monkeypatch.setattr("sys.unraisablehook", said.append)
    for make in (lambda: Turn(mutex), lambda: queue.consume("w"), store.transaction):
        step, done = 0, False
        while not done:
            try:
                with struck_at(step):
                    make()
                done = True  # it took fewer steps
            except StruckError:
                pass
            step += 1
        assert step > 1
    assert [] == said


def test_a_waiter_that_a_handler_drove_away_stands_in_no_line(place: Callable[[], Store]) -> None:
    """Nobody who waits behind one who is gone would be the head."""
    store = place()
    queue = store.queue("q")
    queue.wait(0.001)
    with struck_at(None) as steps:
        queue.wait(0.001)
    for step in range(steps.taken):
        with contextlib.suppress(StruckError), struck_at(step):
            queue.wait(0.001)
        assert [] == store.wakes.waiters._line("q")


def test_a_consumer_that_a_handler_drove_away_stands_in_no_line(place: Callable[[], Store]) -> None:
    """Likewise; be it that it waits, has just claimed, or is about to end."""
    store = place()
    queue = store.queue("q")

    def take() -> None:
        with queue.consume("w") as consumer:
            next(consumer).ack()

    queue.enqueue(0)
    take()
    queue.enqueue(0)
    with struck_at(None) as steps:
        take()
    for step in range(steps.taken):
        queue.enqueue(step)
        with contextlib.suppress(StruckError), struck_at(step):
            take()
        assert [] == store.wakes.waiters._line("q")


def test_closed_stores_keep_no_thread(place: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stores that are opened and closed in turn, one for each request, say, there would be any number of them."""
    monkeypatch.setattr(doorbell, "_IDLE", 3_600)
    before = set(threading.enumerate())
    for turn in range(5):
        with place() as store:
            store.queue("q").enqueue(turn)
    wait_until(lambda: set(threading.enumerate()) <= before, WAIT, "the threads to end")
