"""Sharing a store by threads and across a fork (S-4)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from alkstore import (
    StoreClosedError,
    TransactionError,
)
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.scale import rounds

WAIT = 60.0
"""Seconds after which something that should have ended is taken to hang. Generous: it judges liveness, not speed."""


@clause("S-4")
def test_a_store_may_be_shared_by_threads(store: Store, queue: Queue) -> None:
    """Eight threads enqueue, claim and ack through one store and one handle of the queue, and nothing is lost."""
    threads, each = 8, rounds(200)
    start = threading.Barrier(threads)

    def work(number: int) -> list[int]:
        start.wait(WAIT)
        done: list[int] = []
        for turn in range(each):
            queue.enqueue([number, turn])
            handle = queue.claim_one(f"worker-{number}")
            # Everybody enqueues before claiming, so there is a job for everybody, unless all of them are being claimed.
            if handle is not None and handle.ack():
                done.append(handle.id)
        return done

    with ThreadPoolExecutor(threads) as pool:
        acked = [job_id for done in pool.map(work, range(threads)) for job_id in done]

    assert len(acked) == len(set(acked))
    assert threads * each == len(acked) + queue.stats().ready
    assert 0 == queue.stats().processing


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="not declared: fork (the platform has none)")


def _in_child(action: Callable[[], object]) -> int:
    """Fork, do it in the child, and return the child's id; the child exits 0, or 1 with the traceback on stderr."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(int(WAIT))  # a child that hangs is killed, and seen by its status
        action()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may go up the parent's stack, in the child
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _statuses(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@forks
@clause("S-4", needs="processes")
def test_a_store_survives_a_fork(open_store: OpenStore, queue_name: str) -> None:
    """The parent enqueues 1, four children 100 each through the inherited store, and the parent goes on: nothing is lost."""
    store = open_store()
    queue = store.queue(queue_name)
    queue.enqueue("parent")

    def enqueue(number: int) -> None:
        for turn in range(100):
            queue.enqueue([number, turn])

    def act(number: int) -> Callable[[], object]:
        return lambda: enqueue(number)

    children = [_in_child(act(number)) for number in range(4)]
    queue.enqueue("parent again")

    assert [0] * 4 == _statuses(children)
    queue.enqueue("parent at last")
    assert 403 == queue.stats().ready


@forks
@clause("S-4", needs="processes")
def test_a_child_that_closes_the_store_takes_nothing_from_the_parent(open_store: OpenStore, queue_name: str) -> None:
    """The child uses and closes its copy, in good order or by simply exiting; the parent's claim and connections stay."""
    store = open_store()
    queue = store.queue(queue_name)
    queue.enqueue_many(["first", "second"])
    handle = queue.claim_one("parent")
    assert handle is not None

    def use_and_close() -> None:
        assert 1 == queue.stats().processing
        store.close()
        with pytest.raises(StoreClosedError):
            queue.stats()

    assert [0, 0] == _statuses([_in_child(use_and_close), _in_child(store.close)])
    assert handle.ack()
    assert ["second"] == [job.payload for job in queue.jobs()]


@forks
@clause("S-4", "T-5", needs=("processes", "transactions"))
def test_a_transaction_open_at_the_fork_stays_the_parents(open_store: OpenStore, queue_name: str) -> None:
    """In the child it refuses use, leaving it changes nothing, and calls of the child's own work; the parent commits."""
    store = open_store()
    store.queue(queue_name)
    with store.transaction() as tx:
        tx.queue(queue_name).enqueue("in the transaction")

        def try_it() -> None:
            with pytest.raises(TransactionError):
                tx.queue(queue_name).enqueue("in the child")
            assert [] == store.queue(queue_name).jobs()  # the parent hasn't committed yet
            with suppress(TransactionError):
                tx.__exit__(None, None, None)

        assert [0] == _statuses([_in_child(try_it)])
        tx.queue(queue_name).enqueue("still in the transaction")

    assert ["in the transaction", "still in the transaction"] == [job.payload for job in store.queue(queue_name).jobs()]


@forks
@clause("S-4", "Z-17", needs=("processes", "notify"))
def test_a_child_waits_for_results_while_its_parent_does(open_store: OpenStore, queue_name: str) -> None:
    """Through the inherited store, forked while a thread of the parent waited; each acks what the other waits for."""
    queue = open_store().queue(queue_name)
    ours, theirs = queue.enqueue_many(["parent's", "child's"], keep_result=3600)
    handles = {handle.id: handle for handle in queue.claim_batch("worker", 2)}

    def act() -> None:
        assert handles[ours].ack(result="from the child")
        result = queue.wait_result(theirs, WAIT, poll_interval=1_000)
        assert result is not None
        assert "from the parent" == result.value

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(queue.wait_result, ours, WAIT, poll_interval=1_000)
        with pytest.raises(TimeoutError):
            waits.result(0.2)
        child = _in_child(act)
        result = waits.result(WAIT)
        assert result is not None
        assert "from the child" == result.value
        assert handles[theirs].ack(result="from the parent")
        assert [0] == _statuses([child])


@forks
@clause("S-4", "Z-3", needs="processes")
def test_a_child_that_leaves_its_parents_block_leaves_the_job_alone(open_store: OpenStore, queue_name: str) -> None:
    """A child that exits inside ``with handle:``, by an exception or well, neither retries nor acks what the parent works on."""
    store = open_store()
    queue = store.queue(queue_name)
    queue.enqueue("work")
    handle = queue.claim_one("parent")
    assert handle is not None
    with handle:

        def leave() -> None:
            handle.__exit__(SystemExit, SystemExit(0), None)
            handle.__exit__(None, None, None)

        assert [0] == _statuses([_in_child(leave)])
        assert 1 == queue.stats().processing
    assert 0 == queue.stats().processing
    assert [] == queue.jobs()


@forks
@clause("S-4", "Z-3", "J-10", needs=("processes", "transactions"))
def test_a_child_that_leaves_its_parents_transaction_leaves_the_job_alone(
    open_store: OpenStore, queue_name: str
) -> None:
    """The effects and the ack are the parent's, whatever the child raises."""
    store = open_store(lock_timeout=5)
    queue = store.queue(queue_name)
    queue.enqueue("work")
    handle = queue.claim_one("parent")
    assert handle is not None
    context = handle.transaction()
    with context as tx:
        tx.queue("results").enqueue("done")
        assert [0] == _statuses([_in_child(lambda: context.__exit__(SystemExit, SystemExit(0), None))])
    assert [] == queue.jobs()
    assert ["done"] == [job.payload for job in store.queue("results").jobs()]
