"""What a signal's handler raises, as Ctrl-C does, comes out as it is wherever in a call it strikes, and costs the store nothing."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from alkstore.queue import Queue
from alkstore.store import Store
from contract_tests.interrupting import StruckError, struck_at
from contract_tests.scale import rounds
from tests.harnesses import PostgresHarness, SqliteHarness

WAIT = 30
CONNECTIONS = 2


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
def store(kind: tuple[SqliteHarness | PostgresHarness, dict[str, Any]]) -> Iterator[Store]:
    """A store with few connections."""
    harness, options = kind
    place = harness.new_place()
    with harness.open(place, pool_size=CONNECTIONS, lock_timeout=WAIT, **options) as store:
        yield cast(Store, store)
    harness.drop_place(place)


def work(queue: Queue) -> None:
    for handle in queue.claim_batch("w", 2):
        handle.ack()


CALLS: dict[str, Callable[[Queue, Store], object]] = {
    "enqueue": lambda queue, _: queue.enqueue("x"),
    "claim and ack": lambda queue, _: work(queue),
    "read": lambda queue, _: queue.stats(),
    "wait": lambda queue, _: queue.wait(0.001),
}


def check_whole(store: Store) -> None:
    """Do something that needs all connections at once, and the write lock."""
    gc.collect()
    barrier = threading.Barrier(CONNECTIONS)

    def look() -> None:
        store.queue("q").enqueue("y")
        store.queue("q").stats()
        barrier.wait(WAIT)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for done in [threads.submit(look) for _ in range(CONNECTIONS)]:
            done.result(WAIT)


@pytest.mark.parametrize("call", list(CALLS))
def test_whatever_is_raised_on_top_of_a_call_comes_out_and_nothing_is_lost_for_it(store: Store, call: str) -> None:
    """No connection, no lock, no thread: all that others, and the next call, need."""
    queue = store.queue("q")
    do = CALLS[call]
    do(queue, store)
    check_whole(store)
    with struck_at(None) as steps:
        do(queue, store)
    assert 10 < steps.taken
    for step in range(0, steps.taken, max(1, steps.taken // rounds(4_000))):
        # The call may take fewer steps this time.
        with contextlib.suppress(StruckError), struck_at(step):
            do(queue, store)
        check_whole(store)
