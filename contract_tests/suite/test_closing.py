"""Closing a store (S-3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from alkstore import (
    AlkstoreError,
    StoreClosedError,
)
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore

WAIT = 60.0
"""Seconds after which something that should have ended is taken to hang. Generous: it judges liveness, not speed."""


@clause("S-3")
def test_close_may_be_repeated(store: Store) -> None:
    """A second close does nothing, by method or by ``with``."""
    with store:
        store.close()
        store.close()
    store.close()


StoreUse = Callable[[Store, Queue, JobHandle], object]

USES: dict[str, StoreUse] = {
    "store.queue": lambda store, queue, handle: store.queue("other"),
    "store.queues": lambda store, queue, handle: store.queues(),
    "store.get_job": lambda store, queue, handle: store.get_job(handle.id),
    "store.health": lambda store, queue, handle: store.health(),
    "with store": lambda store, queue, handle: store.__enter__(),
    "queue.enqueue": lambda store, queue, handle: queue.enqueue(1),
    "queue.enqueue_many": lambda store, queue, handle: queue.enqueue_many([1]),
    "queue.enqueue_many, none": lambda store, queue, handle: queue.enqueue_many([]),
    "queue.claim_one": lambda store, queue, handle: queue.claim_one("w"),
    "queue.claim_batch": lambda store, queue, handle: queue.claim_batch("w", 2),
    "queue.claim_batch, none": lambda store, queue, handle: queue.claim_batch("w", 0),
    "queue.handle": lambda store, queue, handle: queue.handle(handle.id, handle.token),
    "queue.ack_batch": lambda store, queue, handle: queue.ack_batch([handle]),
    "queue.ack_batch, none": lambda store, queue, handle: queue.ack_batch([]),
    "queue.cancel": lambda store, queue, handle: queue.cancel(handle.id),
    "queue.get_job": lambda store, queue, handle: queue.get_job(handle.id),
    "queue.get_job, impossible": lambda store, queue, handle: queue.get_job(-1),
    "queue.jobs": lambda store, queue, handle: queue.jobs(),
    "queue.stats": lambda store, queue, handle: queue.stats(),
    "queue.sweep_expired": lambda store, queue, handle: queue.sweep_expired(),
    "queue.retry_dead": lambda store, queue, handle: queue.retry_dead(handle.id),
    "queue.purge": lambda store, queue, handle: queue.purge("dead"),
    "with queue": lambda store, queue, handle: queue.__enter__(),
    "handle.ack": lambda store, queue, handle: handle.ack(),
    "handle.heartbeat": lambda store, queue, handle: handle.heartbeat(),
    "handle.retry": lambda store, queue, handle: handle.retry(),
    "handle.fail": lambda store, queue, handle: handle.fail(),
    "handle.release": lambda store, queue, handle: handle.release(),
    "with handle": lambda store, queue, handle: handle.__enter__(),
    # Arguments come after the closed store (Z-1).
    "a bad name": lambda store, queue, handle: store.queue(""),
    "a bad payload": lambda store, queue, handle: queue.enqueue(object()),
    "a bad worker": lambda store, queue, handle: queue.claim_one(""),
    "a bad extension": lambda store, queue, handle: handle.heartbeat(-1),
    "a bad state": lambda store, queue, handle: queue.purge("gone"),
}


@clause("S-3", "Z-1")
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_closed_store_refuses_every_operation(store: Store, queue: Queue, worker: str, use: StoreUse) -> None:
    """Of the store, and of whatever was made from it, before it looks at the arguments."""
    queue.enqueue("work")
    handle = queue.claim_one(worker)
    assert handle is not None
    store.close()

    with pytest.raises(StoreClosedError):
        use(store, queue, handle)


@clause("S-3", needs="transactions")
def test_a_closed_store_refuses_to_begin_a_transaction(store: Store, queue: Queue, worker: str) -> None:
    """Of its own, or of a handle's."""
    queue.enqueue("work")
    handle = queue.claim_one(worker)
    assert handle is not None
    store.close()

    with pytest.raises(StoreClosedError), store.transaction():
        pass
    with pytest.raises(StoreClosedError), handle.transaction():
        pass


@clause("S-3", needs=("transactions", "durable"))
def test_closing_rolls_back_what_is_open(open_store: OpenStore, queue_name: str) -> None:
    """A transaction that the close cut off never happened, and refuses further use."""
    store = open_store()
    with pytest.raises(StoreClosedError), store.transaction() as tx:
        tx.queue(queue_name).enqueue("lost")
        store.close()
        with pytest.raises(StoreClosedError):
            tx.queue(queue_name)

    assert [] == open_store().queues()


@clause("S-3")
def test_what_a_handle_knows_can_be_read_after_the_close(store: Store, queue: Queue, worker: str) -> None:
    """Reading the record as claimed is no operation: it needs no database."""
    job_id = queue.enqueue({"n": 1})
    handle = queue.claim_one(worker)
    assert handle is not None
    store.close()

    assert (job_id, 1, b'{"n":1}') == (handle.id, handle.attempt, handle.raw)


@clause("S-3", "S-5", needs="processes")
def test_closing_one_store_leaves_another_of_the_place_alone(open_store: OpenStore, queue_name: str) -> None:
    """Stores of one place share its jobs, and nothing else."""
    first, second = open_store(), open_store()
    first.close()

    assert 1 == len(second.queue(queue_name).enqueue_many(["hello"]))


@clause("S-3", "S-4")
def test_closing_under_use_gives_every_thread_an_answer(store: Store, queue_name: str) -> None:
    """Threads in the middle of something either finish it or get ``StoreClosedError``, and none hangs."""
    threads = 4
    ready = threading.Barrier(threads + 1)

    def enqueue_until_closed() -> BaseException:
        queue = store.queue(queue_name)
        queue.enqueue(0)
        ready.wait(WAIT)
        try:
            while True:
                queue.enqueue(1)
        except AlkstoreError as exc:
            return exc

    with ThreadPoolExecutor(threads) as pool:
        ends = [pool.submit(enqueue_until_closed) for _ in range(threads)]
        ready.wait(WAIT)
        store.close()
        found = [end.result(WAIT) for end in ends]

    assert [StoreClosedError] * threads == [type(exc) for exc in found], found
