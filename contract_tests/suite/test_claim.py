"""Claiming: how many, one at a time, and what a claim does (Q-CLAIM-1, Q-CLAIM-2, Q-CLAIM-5, Q-CLAIM-7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest

from alkstore import PayloadError
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Row
from contract_tests.payloads import Scrambled, handed_out
from contract_tests.scale import rounds
from contract_tests.steps import claimed, found
from contract_tests.travel import Clock

MINUTE = timedelta(minutes=1)
WAIT = 60.0


# --- Q-CLAIM-1: how many -----------------------------------------------------------------------------------------


@clause("Q-CLAIM-1")
def test_an_empty_queue_gives_nothing(queue: Queue, worker: str) -> None:
    """``None``, or an empty list."""
    assert queue.claim_one(worker) is None
    assert [] == queue.claim_batch(worker, 10)


@clause("Q-CLAIM-1")
@pytest.mark.parametrize(
    ("n", "given_out"), [(1, 1), (2, 2), (4, 4), (5, 5), (6, 5), (10**6, 5), (2**31, 5), (10**30, 5)]
)
def test_a_batch_has_at_most_as_many_as_asked_for(queue: Queue, n: int, given_out: int) -> None:
    """And all of them while there are enough; the others stay claimable."""
    queue.enqueue_many(range(5))

    assert list(range(given_out)) == handed_out(queue, n)
    assert list(range(given_out, 5)) == handed_out(queue)


@clause("Q-CLAIM-1", "Z-1")
@pytest.mark.parametrize("n", [0, -1, -(10**30)])
def test_none_or_fewer_is_an_empty_list(queue: Queue, peek: Callable[[], list[Row]], n: int) -> None:
    """Nothing is claimed."""
    queue.enqueue("work")
    before = peek()

    assert [] == queue.claim_batch("worker", n)
    assert before == peek()


@clause("Q-CLAIM-1", "T-5", needs="transactions")
def test_none_or_fewer_is_answered_without_the_database(store: Store, queue: Queue) -> None:
    """It is answered where any I/O outside of the open transaction would be refused."""
    with store.transaction():
        assert [] == queue.claim_batch("worker", 0)


@clause("Q-CLAIM-1")
def test_large_batches_come_whole(queue: Queue) -> None:
    """Thousands at once, in order, and none twice."""
    count = 5_000
    queue.enqueue_many(range(count))

    assert list(range(count)) == handed_out(queue, count)
    assert [] == handed_out(queue)


@clause("Q-CLAIM-1", "Q-1")
def test_a_claim_sees_only_its_own_queue(store: Store) -> None:
    """Whatever the priority of the others'."""
    store.queue("other").enqueue("theirs", priority=9)
    mine = store.queue("mine")
    mine.enqueue("mine")

    assert ["mine"] == handed_out(mine)
    assert ["theirs"] == handed_out(store.queue("other"))


# --- Q-CLAIM-2: one claim at a time ------------------------------------------------------------------------------


@clause("Q-CLAIM-2")
def test_a_claimed_job_is_nobody_elses(queue: Queue) -> None:
    """Not of another worker, nor of the same one asking again."""
    queue.enqueue("work")
    handle = claimed(queue, "worker-1")

    assert queue.claim_one("worker-2") is None
    assert queue.claim_one("worker-1") is None
    assert handle.ack()


@clause("Q-CLAIM-2")
def test_two_threads_and_one_job(store: Store, queue: Queue) -> None:
    """They ask at the same moment, round after round, and exactly one of them gets it."""
    barrier = threading.Barrier(2)

    def claim(name: str) -> JobHandle | None:
        barrier.wait(WAIT)
        return queue.claim_one(name)

    with ThreadPoolExecutor(2) as pool:
        for turn in range(rounds(300)):
            job_id = queue.enqueue(turn)
            found = [handle for handle in pool.map(claim, ["a", "b"]) if handle is not None]
            assert [job_id] == [handle.id for handle in found]
            assert found[0].ack()


# --- Q-CLAIM-5: what a claim does --------------------------------------------------------------------------------


@clause("Q-CLAIM-5")
def test_a_claim_counts_names_and_sets_the_deadline(store: Store, clock: Clock) -> None:
    """On the record and on the handle; everything else is as it was."""
    queue = store.queue("emails", visibility_timeout=timedelta(seconds=7, microseconds=1))
    job_id = queue.enqueue({"n": 1}, priority=3, headers={"trace": "1"}, expires=600)
    before = found(queue, job_id)
    clock.advance(5)

    handle = claimed(queue, "worker-7")

    deadline = clock() + timedelta(seconds=7, microseconds=1)
    after = found(queue, job_id)
    assert ("pending", 0, None, None) == (before.state, before.attempts, before.worker_id, before.claim_expires_at)
    assert ("processing", 1, "worker-7", deadline) == (
        after.state,
        after.attempts,
        after.worker_id,
        after.claim_expires_at,
    )
    kept = "id queue raw codec priority max_attempts created_at run_at expires_at visibility_timeout last_error died_at"
    assert [getattr(before, name) for name in kept.split()] == [getattr(after, name) for name in kept.split()]
    assert dict(before.headers) == dict(after.headers)
    assert after == handle.job
    assert (job_id, "emails", 1, {"n": 1}, b'{"n":1}', {"trace": "1"}, 3, deadline) == (
        handle.id,
        handle.queue,
        handle.attempt,
        handle.payload,
        handle.raw,
        dict(handle.headers),
        handle.priority,
        handle.deadline,
    )


@clause("Q-CLAIM-5", "Q-CLAIM-1")
def test_every_job_of_a_batch_is_claimed_alike(store: Store, clock: Clock) -> None:
    """Each by its own stamps, and with a token of its own."""
    queue = store.queue("emails")
    for seconds in [10, 20, 30]:
        store.queue("emails", visibility_timeout=seconds).enqueue(seconds)

    handles = queue.claim_batch("worker", 3)

    assert [clock() + timedelta(seconds=seconds) for seconds in [10, 20, 30]] == [handle.deadline for handle in handles]
    assert 3 == len({handle.token for handle in handles})
    assert [(1, "worker")] * 3 == [(job.attempts, job.worker_id) for job in queue.jobs("processing")]


@clause("Q-CLAIM-5")
def test_a_reclaim_counts_too(store: Store, clock: Clock) -> None:
    """An attempt more, another worker, a deadline from now, and another token."""
    queue = store.queue("emails")
    job_id = queue.enqueue("work")
    first = claimed(queue, "worker-1")
    clock.advance(100)

    second = claimed(queue, "worker-2")

    assert (job_id, 2, clock() + MINUTE) == (second.id, second.attempt, second.deadline)
    assert first.token != second.token
    assert (2, "worker-2", clock() + MINUTE) == (
        found(queue, job_id).attempts,
        found(queue, job_id).worker_id,
        found(queue, job_id).claim_expires_at,
    )
    assert (1, "worker-1") == (first.attempt, first.job.worker_id)  # as it was claimed


@clause("Q-CLAIM-5")
def test_a_token_is_never_used_again(store: Store, clock: Clock) -> None:
    """Through acks, releases, retries, lapses and further jobs, each claim has another."""
    queue = store.queue("emails", max_attempts=10**6)
    tokens: list[int] = []
    for turn in range(30):
        queue.enqueue(turn)
        handle = claimed(queue)
        tokens.append(handle.token)
        if turn % 4 == 0:
            assert handle.ack()
        elif turn % 4 == 1:
            assert handle.release()
        elif turn % 4 == 2:
            assert handle.retry(delay=0)
        else:
            clock.advance(61)

    assert len(tokens) == len(set(tokens))
    assert all(0 < token < 2**63 for token in tokens)


@clause("Q-CLAIM-5", "T-4", needs="transactions")
def test_a_token_of_a_rolled_back_claim_is_never_used_again(store: Store, queue: Queue, queue_name: str) -> None:
    """Else the handle of the claim that never happened could speak for a later one."""
    queue.enqueue("work")
    ghosts: list[JobHandle] = []
    for _ in range(20):
        with pytest.raises(LookupError), store.transaction() as tx:
            ghosts.append(claimed(tx.queue(queue_name)))
            raise LookupError

    handle = claimed(queue)

    assert 1 == handle.attempt
    assert 21 == len({ghost.token for ghost in ghosts} | {handle.token})
    assert [False] * 20 == [ghost.ack() for ghost in ghosts]
    assert handle.ack()


# --- Q-CLAIM-7: what can't be decoded ----------------------------------------------------------------------------


@clause("Q-CLAIM-7")
def test_a_payload_that_cannot_be_decoded_does_not_break_the_batch(
    open_store: OpenStore, store: Store, queue_name: str, clock: Clock
) -> None:
    """The others are fine; its own ``.payload`` raises each time, ``.raw`` has the bytes, and all else works."""
    queue = store.queue(queue_name)
    queue.enqueue("before")
    broken_id = store.queue(queue_name, codec=cast(Any, Scrambled())).enqueue("whatever")
    queue.enqueue("after")

    before, broken, after = queue.claim_batch("worker", 10)

    assert ["before", "after"] == [before.payload, after.payload]
    for _ in range(2):
        with pytest.raises(PayloadError):
            _ = broken.payload
    assert (broken_id, b'{"broken": \xff', "json", 1) == (broken.id, broken.raw, broken.job.codec, broken.attempt)
    with pytest.raises(PayloadError):
        _ = found(queue, broken_id).payload
    assert b'{"broken": \xff' == found(queue, broken_id).raw
    assert [broken_id] == [job.id for job in queue.jobs() if job.raw == broken.raw]
    assert broken.heartbeat()
    assert broken.fail("can't be read")
    assert "dead" == found(queue, broken_id).state


@clause("Q-CLAIM-7", "Z-10")
def test_what_a_codec_raises_is_the_cause(store: Store, queue: Queue) -> None:
    """A codec is anybody's code, and may raise anything while decoding."""

    class Bomb:
        name = "bomb"

        def encode(self, payload: object) -> bytes:
            return b"tick"

        def decode(self, data: bytes) -> object:
            raise ZeroDivisionError("tock")

    store.queue(queue.name, codec=Bomb()).enqueue(1)
    handle = claimed(queue)

    with pytest.raises(PayloadError) as raised:
        _ = handle.payload
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert b"tick" == handle.raw
    assert handle.ack()
