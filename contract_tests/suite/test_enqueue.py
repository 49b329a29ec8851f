"""Enqueueing: ids, and many at once (Q-ENQ-1, Q-ENQ-3)."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from alkstore import Item, PayloadError, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Harness, Row
from contract_tests.scale import rounds
from contract_tests.travel import Clock

WAIT = 60.0


# --- Q-ENQ-1: ids ------------------------------------------------------------------------------------------------


@clause("Q-ENQ-1")
def test_a_job_is_committed_when_its_id_is_returned(queue: Queue, peek: Callable[[], list[Row]]) -> None:
    """The back door sees it, pending and due."""
    job_id = queue.enqueue({"to": "a@example.org"})

    assert int is type(job_id)
    assert [(job_id, "live", 0, None, b'{"to":"a@example.org"}')] == [
        (row.id, row.table, row.attempts, row.worker_id, row.payload) for row in peek()
    ]


@clause("Q-ENQ-1")
def test_ids_grow(store: Store, queue: Queue) -> None:
    """Each is greater than all before it, across queues too."""
    ids = [queue.enqueue(1), store.queue("other").enqueue(2), *queue.enqueue_many([3, 4, 5]), queue.enqueue(6)]

    assert sorted(set(ids)) == ids
    assert ids[0] >= 1


@clause("Q-ENQ-1", "Q-6", "Q-3")
def test_an_id_is_never_used_again(store: Store, queue: Queue, clock: Clock, worker: str) -> None:
    """However the row went: acked, cancelled, purged, or past its retention, the greatest id at that."""
    seen: list[int] = []

    def fresh() -> int:
        job_id = queue.enqueue("work")
        assert not seen or job_id > max(seen)
        seen.append(job_id)
        return job_id

    fresh()
    handle = queue.claim_one(worker)
    assert handle is not None
    assert handle.ack()
    assert queue.cancel(fresh())
    fresh()
    assert 1 == queue.purge("pending")
    fresh()
    handle = queue.claim_one(worker)
    assert handle is not None
    assert handle.fail()
    assert 1 == queue.purge("dead")
    brief = store.queue(queue.name, dead_letter_retention=0)
    seen.append(brief.enqueue("brief"))
    handle = queue.claim_one(worker)
    assert handle is not None
    assert handle.fail()
    clock.advance(1)
    assert 0 == queue.sweep_expired()
    assert [] == queue.jobs()
    fresh()


@clause("Q-ENQ-1", needs="durable")
def test_an_id_is_never_used_again_after_reopening(open_store: OpenStore, queue_name: str) -> None:
    """A store that is emptied, closed and opened again goes on where it was."""
    with open_store() as store:
        first = store.queue(queue_name).enqueue_many(range(10))
        assert 10 == store.queue(queue_name).purge("pending")
    with open_store() as store:
        assert store.queue(queue_name).enqueue("later") > max(first)


@clause("Q-ENQ-1", needs="processes")
def test_ids_are_unique_across_stores(harness: Harness, place: str, queue_name: str) -> None:
    """Four stores of one place enqueue at once, one by one and many at a time."""
    start = threading.Barrier(4)

    def enqueue(_: int) -> list[int]:
        with harness.open(place) as store:
            queue = store.queue(queue_name)
            start.wait(WAIT)
            return [job_id for n in range(10) for job_id in (queue.enqueue(n), *queue.enqueue_many([n, n]))]

    harness.open(place).close()
    with ThreadPoolExecutor(4) as pool:
        ids = [job_id for found in pool.map(enqueue, range(4)) for job_id in found]

    assert 120 == len(ids) == len(set(ids))


# --- Q-ENQ-3: many -----------------------------------------------------------------------------------------------


@clause("Q-ENQ-3")
@pytest.mark.parametrize("count", [0, 1, 2, 999, 1_000, 1_001, 2_500])
def test_the_ith_id_belongs_to_the_ith_item(queue: Queue, count: int) -> None:
    """For any number of them, whatever the size of the chunks."""
    ids = queue.enqueue_many(range(count))

    assert count == len(ids) == len(set(ids))
    found = {
        job.id: job.payload for start in range(0, count, 500) for job in queue.jobs(after=ids[start] - 1, limit=500)
    }
    assert dict(zip(ids, range(count), strict=True)) == found


@clause("Q-ENQ-3", "Q-CLAIM-3")
def test_ids_belong_to_their_items_whatever_their_options(queue: Queue) -> None:
    """An engine that sorts what it inserts still answers in the order of the items."""
    items = [Item(n, priority=(n * 7) % 5 - 2, delay=(n * 3) % 11) for n in range(300)]

    ids = queue.enqueue_many(items)

    assert list(range(300)) == [cast(Any, queue.get_job(job_id)).payload for job_id in ids]
    assert sorted(ids) == ids


def _numbers() -> Iterator[int]:
    yield from (1, 2, 3)


ITERABLES: dict[str, Callable[[], Iterable[object]]] = {
    "a list": lambda: [1, 2, 3],
    "a tuple": lambda: (1, 2, 3),
    "a range": lambda: range(1, 4),
    "a generator": _numbers,
    "a map": lambda: map(int, "123"),
    "a deque": lambda: collections.deque([1, 2, 3]),
    "the values of a dict": {"a": 1, "b": 2, "c": 3}.values,
}


@clause("Q-ENQ-3")
@pytest.mark.parametrize("iterable", ITERABLES.values(), ids=ITERABLES.keys())
def test_any_iterable_will_do(queue: Queue, iterable: Callable[[], Iterable[object]]) -> None:
    """It is read once, in order."""
    queue.enqueue_many(iterable())

    assert [1, 2, 3] == [job.payload for job in queue.jobs()]


@clause("Q-ENQ-3", "Z-9")
@pytest.mark.parametrize("good", [0, 1, 2_500])
def test_an_iterable_that_fails_leaves_nothing_behind(queue: Queue, peek: Callable[[], list[Row]], good: int) -> None:
    """Its exception comes out as it is, and none of the items before it was stored."""

    def failing() -> Iterator[int]:
        yield from range(good)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        queue.enqueue_many(failing())
    assert [] == peek()


@clause("Q-ENQ-3", "O-4")
@pytest.mark.parametrize("good", [0, 1, 2_500])
def test_one_bad_item_leaves_nothing_behind(queue: Queue, peek: Callable[[], list[Row]], good: int) -> None:
    """All or none, also where the bad one comes chunks later."""
    with pytest.raises(PayloadError):
        queue.enqueue_many([*range(good), object()])
    with pytest.raises(ValidationError):
        queue.enqueue_many([*range(good), Item("work", delay=-1)])
    assert [] == peek()


@clause("Q-ENQ-3")
def test_nobody_ever_sees_a_part_of_many(queue: Queue) -> None:
    """Whoever looks while thousands are being enqueued sees none of them, and then all."""
    count = 5_000
    with ThreadPoolExecutor(1) as pool:
        for turn in range(rounds(30)):
            enqueueing = pool.submit(queue.enqueue_many, range(count))
            seen = {queue.stats().ready}
            while not enqueueing.done():
                seen.add(queue.stats().ready)
            assert count == len(enqueueing.result())
            assert seen <= {0, count}, f"in round {turn}"
            assert count == queue.purge("pending")


@clause("Z-9", "Q-ENQ-3")
def test_the_iterable_may_use_the_store_itself(store: Store, queue: Queue, worker: str) -> None:
    """It is read to its end before anything is locked, so that it can move jobs from one queue to another."""
    queue.enqueue_many(["a", "b", "c"])

    def moving() -> Iterator[object]:
        while (handle := queue.claim_one(worker)) is not None:
            yield handle.payload
            assert handle.ack()

    ids = store.queue("moved").enqueue_many(moving())

    assert 3 == len(ids)
    assert ["a", "b", "c"] == [job.payload for job in store.queue("moved").jobs()]
    assert [] == queue.jobs()


@clause("Q-ENQ-3", "T-2", needs="transactions")
def test_many_in_a_transaction_stand_or_fall_with_it(store: Store, queue_name: str) -> None:
    """However many chunks they take."""
    with pytest.raises(LookupError), store.transaction() as tx:
        tx.queue(queue_name).enqueue_many(range(2_500))
        raise LookupError
    assert [] == store.queues()

    with store.transaction() as tx:
        ids = tx.queue(queue_name).enqueue_many(range(2_500))
    assert 2_500 == len(ids) == store.queue(queue_name).stats().ready


@clause("Q-ENQ-3", "O-1")
def test_many_are_stamped_as_one_is(store: Store, worker: str) -> None:
    """With the handle's options and codec."""
    queue = store.queue("emails", codec="raw", visibility_timeout=7, max_attempts=2)
    queue.enqueue_many([b"a", Item(b"b", max_attempts=3)])

    jobs = queue.jobs()

    assert ["raw", "raw"] == [job.codec for job in jobs]
    assert [7.0, 7.0] == [job.visibility_timeout.total_seconds() for job in jobs]
    assert [2, 3] == [job.max_attempts for job in jobs]
