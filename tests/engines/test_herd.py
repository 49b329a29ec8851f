"""Many stores that hear of the same job: one has it, and the others hardly get in its way (Z-14, W-4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext

import pytest

import alkstore
from alkstore import consuming
from alkstore.queue import Queue
from alkstore.store import Store
from alkstore.waiting import Waiter, Waiters
from alkstore.wakes import Wakes
from contract_tests.scale import rounds
from tests.integrations.conftest import place, postgres_database
from tests.integrations.places import Place
from tests.support.waiting import wait_until

__all__ = ["place", "postgres_database"]

WAIT = 60.0
NEVER = 3_600
STORES = 6


class Herd:
    """Stores that wait for jobs of one queue, each on a thread; none of them polls."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.stores = [stack.enter_context(alkstore.open(place.url, **place.options)) for _ in range(STORES)]
        self.in_vain = 0
        self.done = threading.Semaphore(0)
        self._counting = threading.Lock()
        self._threads = stack.enter_context(ThreadPoolExecutor(STORES))
        self._stop = threading.Event()
        self._ended = [self._threads.submit(self._work, store) for store in self.stores]
        self.all_wait()

    def _work(self, store: Store) -> None:
        for handle in store.queue("q").consume("w", poll_interval=NEVER, stop=self._stop):
            assert handle.ack()
            self.done.release()

    def claimed(self, count: int) -> None:
        """Count a claim."""
        if not count:
            with self._counting:
                self.in_vain += 1

    def all_wait(self) -> None:
        """Wait until they do."""
        wait_until(lambda: all(store.wakes.waiters._line("q") for store in self.stores), WAIT, "all to wait")

    def end(self) -> None:
        """Have them end, and raise what they raised."""
        self._stop.set()
        for each in self._ended:
            each.result(WAIT)


@pytest.fixture
def herd(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Herd]:
    with ExitStack() as stack:
        herd = Herd(place, stack)
        claim_batch = Queue.claim_batch

        def counted(queue: Queue, worker_id: str, n: int) -> list[alkstore.JobHandle]:
            handles = claim_batch(queue, worker_id, n)
            herd.claimed(len(handles))
            return handles

        monkeypatch.setattr(Queue, "claim_batch", counted)
        yield herd
        herd.end()


@pytest.mark.parametrize("when", ["now", "later"])
def test_stores_that_are_told_of_the_same_job_let_each_other_go_first(herd: Herd, place: Place, when: str) -> None:
    """Whether they hear of it or know when it is due. Whoever had it looks in vain once more by itself, before it waits again."""
    jobs = max(20, rounds(200)) if when == "now" else 30
    with alkstore.open(place.url, **place.options) as store:
        for _ in range(jobs):
            store.queue("q").enqueue(1, delay=0 if when == "now" else 0.05)
            assert herd.done.acquire(timeout=WAIT)
            herd.all_wait()
    others = herd.in_vain - jobs
    assert others <= jobs * (STORES - 1), "one claim in vain each, at most"


def test_who_was_told_in_vain_looks_first_the_next_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other stores know, too, is claimed at once by who had the last of it, and not by the others."""
    claims: list[int] = []
    looks = threading.Semaphore(0)
    claim_batch, look = Queue.claim_batch, consuming.look

    def claim_seen(queue: Queue, worker_id: str, n: int) -> list[alkstore.JobHandle]:
        handles = claim_batch(queue, worker_id, n)
        claims.append(len(handles))
        return handles

    def look_seen(store: Store, queue: str) -> float | None:
        found = look(store, queue)
        looks.release()
        return found

    def hear_nothing(_: Wakes) -> AbstractContextManager[None]:
        return nullcontext()

    def heard() -> None:
        store.wakes._heard("q", 1)
        assert looks.acquire(timeout=WAIT)  # after the claim in vain, or instead of it

    monkeypatch.setattr(Queue, "claim_batch", claim_seen)
    monkeypatch.setattr(consuming, "look", look_seen)
    with ExitStack() as stack:
        store = stack.enter_context(alkstore.open(place.url, **place.options))
        queue, stop = store.queue("q"), threading.Event()
        thread = stack.enter_context(ThreadPoolExecutor(1))
        monkeypatch.setattr(Wakes, "attending", hear_nothing)
        consumer = queue.consume("w", poll_interval=NEVER, stop=stop)
        waiting = thread.submit(next, consumer)
        try:
            assert looks.acquire(timeout=WAIT)
            assert [0] == claims
            heard()
            assert [0, 0] == claims, "the first is as good as any"
            heard()
            heard()
            assert [0, 0] == claims
            queue.enqueue(1)  # which is its own, and doesn't wait
            waiting.result(WAIT).ack()
            assert [0, 0, 1] == claims
            waiting = thread.submit(next, consumer)
            assert looks.acquire(timeout=WAIT)
            heard()
            assert [0, 0, 1, 0, 0] == claims
        finally:
            stop.set()


def test_who_was_told_in_vain_stands_back_when_a_job_falls_due(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """All stores have the same clock."""
    moments: list[float] = []
    stand_back = Waiters.stand_back

    def stand_back_seen(waiters: Waiters, waiter: Waiter) -> float:
        moments.append(stand_back(waiters, waiter))
        return moments[-1]

    monkeypatch.setattr(Waiters, "stand_back", stand_back_seen)
    with alkstore.open(place.url, **place.options) as store:
        queue, waiters = store.queue("q"), store.wakes.waiters
        for times in (0, 1, 5):
            for _ in range(times):
                waiters.fell_due(Waiter("q"))
            queue.enqueue(1, delay=0.3)
            handle = next(queue.consume("w", poll_interval=NEVER))
            assert handle.ack()
        assert 0.0 == moments[0]
        assert [True, True] == [0.0 < moment <= 0.016 for moment in moments[1:]]
