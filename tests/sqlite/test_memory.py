"""A store in memory: one connection, shared by its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import alkstore


@pytest.fixture
def memory() -> Iterator[alkstore.Store]:
    with alkstore.open("sqlite:///:memory:", lock_timeout=20) as store:
        yield store


def test_two_stores_in_memory_are_two(memory: alkstore.Store) -> None:
    memory.queue("q").enqueue(1)
    with alkstore.open("sqlite:///:memory:") as other:
        assert 0 == other.queue("q").stats().ready


def test_threads_share_it_and_each_gets_on(memory: alkstore.Store) -> None:
    queue, ids, claimed, errors = memory.queue("q"), list[int](), list[int](), list[Exception]()
    start = threading.Barrier(8)

    def produce() -> None:
        try:
            start.wait()
            for number in range(100):
                ids.append(queue.enqueue(number))
                queue.stats()
        except (alkstore.AlkstoreError, AssertionError, threading.BrokenBarrierError) as exc:
            errors.append(exc)

    def consume() -> None:
        try:
            start.wait()
            while len(claimed) < 400:
                for job in queue.claim_batch("w", 7):
                    assert job.ack()
                    claimed.append(job.id)
        except (alkstore.AlkstoreError, AssertionError, threading.BrokenBarrierError) as exc:
            errors.append(exc)

    threads = [threading.Thread(target=act) for act in (produce, consume) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [] == errors
    assert [*range(1, 401)] == sorted(ids) == sorted(claimed)


def test_others_wait_for_an_open_transaction_as_long_as_allowed() -> None:
    outcomes: list[str] = []

    def use(call: object) -> None:
        try:
            assert callable(call)
            call()
            outcomes.append("done")
        except alkstore.EngineBusyError:
            outcomes.append("busy")

    with alkstore.open("sqlite:///:memory:", lock_timeout=0.1) as store:
        queue = store.queue("q")
        for expected in ("busy", "done"):
            threads = [threading.Thread(target=use, args=(call,)) for call in (queue.stats, lambda: queue.enqueue(1))]
            if expected == "busy":
                with store.transaction() as tx:
                    tx.queue("q").enqueue(1)
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join(30)
            else:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(30)
            assert [expected] * 2 == outcomes
            outcomes.clear()
        assert 2 == queue.stats().ready


def test_what_it_can_do_is_declared(memory: alkstore.Store) -> None:
    declared = memory.capabilities
    assert (False, False, True, True) == (
        declared.durable,
        declared.processes,
        declared.transactions,
        declared.sql,
    )
    assert memory.health().wal_bytes is None


def test_it_has_one_connection(memory: alkstore.Store) -> None:
    with pytest.raises(alkstore.ValidationError, match="pool_size"):
        alkstore.open("sqlite:///:memory:", pool_size=2)
    alkstore.open("sqlite:///:memory:", pool_size=1).close()


def test_it_is_gone_once_closed(memory: alkstore.Store) -> None:
    queue = memory.queue("q")
    memory.close()
    with pytest.raises(alkstore.StoreClosedError):
        queue.enqueue(1)


def test_a_store_that_nobody_else_hears_has_no_thread_to_ring_on() -> None:
    """Its own waiters are told directly; its listeners are told by one."""
    with alkstore.open("sqlite:///:memory:") as store:
        before = set(threading.enumerate())
        queue = store.queue("a")
        queue.enqueue_many(range(3))
        assert queue.wait(0)
        assert [] == doorbells(before)
        with store.listen("c") as listener:
            store.notify("c", "heard")
            notification = listener.get(20)
            assert notification is not None
            assert "heard" == notification.payload


def doorbells(before: set[threading.Thread]) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "alkstore-doorbell" and each not in before]


def test_a_result_is_waited_for_in_memory_too(memory: alkstore.Store) -> None:
    """Woken by the ack alone, as nobody else can commit (Z-17)."""
    queue = memory.queue("q")
    with ThreadPoolExecutor(1) as pool:
        for number in range(50):
            job_id = queue.enqueue(number, keep_result=60)
            waits = pool.submit(queue.wait_result, job_id, 60, poll_interval=1_000)
            handle = queue.claim_one("w")
            assert handle is not None
            assert handle.ack(result=number)
            result = waits.result(60)
            assert result is not None
            assert number == result.value
