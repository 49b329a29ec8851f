"""Waiting beside jobs that somebody has locked, and with one connection (W-4)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, cast

import pytest

from contract_tests.steps import Leave, claimed, leaving
from tests.postgres.conftest import Opener
from tests.support.waiting import wait_until

NEVER = 3_600
SOON = 20.0


def test_a_job_that_is_locked_keeps_no_other_waiting(open_store: Opener) -> None:
    """However many claims were in vain; and once it is let go, it is taken up, too. Nobody polls, and nobody rings."""
    got: SimpleQueue[object] = SimpleQueue()
    store, other = open_store(), open_store()
    with ThreadPoolExecutor(1) as thread:
        queue = store.queue("a")
        queue.enqueue("locked")
        consumer = queue.consume("w", poll_interval=NEVER)

        def consume() -> None:
            for handle in consumer:
                got.put(handle.payload)
                handle.ack()

        in_vain = cast(Any, store).wakes.waiters._in_vain
        with consumer:
            with leaving(), other.transaction() as tx:
                claimed(tx.queue("a"))
                thread.submit(consume)
                wait_until(lambda: in_vain.get("a", 0) > 2, SOON, "claims in vain")
                in_vain["a"] = 30
                queue.enqueue("due", delay=0.5)
                assert "due" == got.get(timeout=SOON)
                in_vain["a"] = 30
                raise Leave
            assert "locked" == got.get(timeout=SOON)


def test_a_consumer_is_closed_on_top_of_a_call_that_has_the_only_connection(open_store: Opener) -> None:
    """Nobody waits for it; what wasn't given is there again soon after."""
    with open_store(pool_size=1, lock_timeout=SOON) as store:
        queue = store.queue("a")
        queue.enqueue_many(range(4))
        consumer = queue.consume("w", batch=4)
        handle = next(consumer)
        pool = cast(Any, store).engine._pool
        release = pool.release

        def interrupted(connection: object) -> None:
            pool.release = release
            consumer.close()
            release(connection)

        pool.release = interrupted
        assert handle.ack()
        wait_until(lambda: queue.stats().ready == 3, SOON / 2, "what was given back")


@pytest.mark.parametrize("wakes", ["notify", "poll"])
def test_there_is_a_thread_to_ring_on_where_somebody_may_hear(wakes: str, open_store: Opener) -> None:
    """Not in a store that polls, as those do that it rings for; and not for what the server tells listeners."""
    store = open_store(wakes=wakes)
    before = set(threading.enumerate())
    store.notify("c", "told by the server")
    assert [] == _doorbells(before)
    store.queue("a").enqueue(1)
    assert (wakes == "notify") == bool(_doorbells(before))


def _doorbells(before: set[threading.Thread]) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "alkstore-doorbell" and each not in before]
