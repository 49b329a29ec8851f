"""A child of a fork finds no lock held that another thread of its parent had just then (S-4)."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

import alkstore
from alkstore import Worker
from alkstore.store import Store
from alkstore.testing import FrozenClock
from tests.harnesses import PostgresHarness, SqliteHarness
from tests.support.waiting import wait_until
from tests.worker.running import Running

WAIT = 60
NEVER = 3_600

CHILD_WITHIN = 20
"""Seconds within which a child has done what is asked of it, which takes a fraction of one; then it is killed."""


@pytest.fixture(scope="module", params=[SqliteHarness, PostgresHarness], ids=["sqlite", "postgresql"])
def harness(request: pytest.FixtureRequest) -> Iterator[SqliteHarness | PostgresHarness]:
    """An engine's harness, started."""
    made = request.param()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def store(harness: SqliteHarness | PostgresHarness) -> Iterator[Store]:
    """A store in a place of its own."""
    place = harness.new_place()
    with harness.open(place, durability="relaxed") as store:
        yield cast(Store, store)
    harness.drop_place(place)


def in_child(deed: Callable[[], object]) -> None:
    """Do it in a child of a fork, which is to end well and soon."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            deed()
            code = 0
        finally:
            os._exit(code)
    os.close(writer)  # the child has the other end alone: it is closed as the child ends
    ended = select.select([reader], [], [], CHILD_WITHIN)[0]
    os.close(reader)
    if not ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert ended, "the child hung"
    assert 0 == status


def end_of(parents: Any) -> None:
    assert [] == list(parents)


def test_what_another_thread_waits_in_can_be_used_and_ended_in_the_child(store: Store) -> None:
    """A consumer and a listener: both are the parent's, and so at their end here; and the parent's own go on."""
    queue = store.queue("q")
    consumer, listener = queue.consume("w", poll_interval=NEVER), store.listen("c")
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(next, consumer), threads.submit(listener.get)
        wait_until(lambda: len(store.wakes.waiters._line("q")) == 1, WAIT, "the consumer to wait")
        time.sleep(0.2)
        try:
            for deed in (
                lambda: end_of(consumer),
                consumer.close,
                lambda: end_of(listener),
                listener.close,
                store.close,
            ):
                in_child(deed)
        finally:
            queue.enqueue(1)
            store.notify("c", "x")
        assert 1 == waiting[0].result(WAIT).payload
        assert "x" == cast(alkstore.Notification, waiting[1].result(WAIT)).payload


def test_a_store_that_is_just_being_closed_can_be_closed_in_the_child(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't closed there yet, and closing it does something."""
    began, go_on = threading.Event(), threading.Event()
    close = type(store.wakes).close

    def closing(wakes: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            began.set()
            assert go_on.wait(WAIT)
        close(wakes)

    def close_in_child() -> None:
        closed: list[object] = []

        def close_engine(engine: object) -> None:
            closed.append(engine)

        monkeypatch.setattr(type(store.engine), "close", close_engine)
        store.close()
        assert 1 == len(closed)

    monkeypatch.setattr(type(store.wakes), "close", closing)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(store.close)
        assert began.wait(WAIT)
        try:
            in_child(close_in_child)
        finally:
            go_on.set()
        done.result(WAIT)


def test_a_clock_that_is_just_being_moved_can_be_moved_in_the_child() -> None:
    clock = FrozenClock()
    with clock._moving:
        in_child(lambda: clock.tick(1))


def test_a_worker_that_runs_in_the_parent_can_run_in_the_child(store: Store) -> None:
    """And isn't running there before."""
    done: list[Any] = []
    worker = Worker(store, {"q": lambda job: done.append(job.payload)})

    def run() -> None:
        worker.stop()
        store.queue("q").enqueue("child's")
        wait_until(lambda: not store.queue("q").jobs(), WAIT, "the parent's worker")
        worker.run(until_idle=True)

    with Running(worker):
        wait_until(lambda: len(store.wakes.waiters._line("q")) == 1, WAIT, "the worker to be idle")
        with worker._starting:
            in_child(run)
        wait_until(lambda: done == ["child's"], WAIT, "the parent's worker to have it")
