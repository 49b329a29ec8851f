"""Expiry, stranded jobs and retention: what a sweep moves, deletes and counts (Q-5, Q-CLAIM-6, Z-8)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from alkstore import State
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.steps import Leave, Peek, claimed, found, leaving
from contract_tests.travel import MICROSECOND, Clock


@clause("Q-5")
def test_a_sweep_buries_what_is_past_its_expiry(queue: Queue, clock: Clock, peek: Peek) -> None:
    """Pending, scheduled, processing in time and lapsed: all four are dead with ``expired``, and counted."""
    queue.enqueue_many(["claimed", "lapsed"], priority=1, expires=100)
    queue.enqueue("due", expires=100)
    queue.enqueue("scheduled", expires=100, delay=5000)
    fresh = queue.enqueue("never expires")
    held, lapsed = queue.claim_batch("worker-1", 2)
    assert held.heartbeat(extend=5000)
    clock.advance(100)
    assert clock() > lapsed.deadline
    assert 4 == queue.sweep_expired()
    dead = queue.jobs(State.DEAD)
    assert 4 == len(dead)
    assert {("expired", clock(), None)} == {(job.last_error, job.died_at, job.worker_id) for job in dead}
    assert [fresh] == [job.id for job in queue.jobs(State.PENDING)]
    assert 5 == len(peek())
    assert 0 == queue.sweep_expired()


@clause("Q-5", "Q-CLAIM-4")
def test_an_expiry_is_met_to_the_microsecond(queue: Queue, clock: Clock) -> None:
    """A microsecond before it, the job is neither swept nor withheld; at it, both."""
    queue.enqueue_many(["a", "b"], expires=10)
    clock.advance(timedelta(seconds=10) - MICROSECOND)
    assert 0 == queue.sweep_expired()
    assert "a" == claimed(queue).payload
    clock.advance(MICROSECOND)
    assert queue.claim_one("other") is None
    assert 2 == queue.sweep_expired()


@clause("Q-CLAIM-4", "J-1")
def test_a_claim_outlives_its_jobs_expiry_until_a_sweep(queue: Queue, clock: Clock) -> None:
    """A worker that has begun in time may finish: its ack, late for the expiry and not for the deadline, is granted."""
    queue.enqueue("work", expires=10)
    handle = claimed(queue)
    clock.advance(10)
    assert handle.heartbeat()
    assert handle.ack()
    assert 0 == queue.sweep_expired()


@clause("Q-CLAIM-4", "J-4", "J-6")
@pytest.mark.parametrize("released", [True, False], ids=["released", "retried"])
def test_a_job_given_back_after_its_expiry_is_never_handed_out(released: bool, queue: Queue, clock: Clock) -> None:
    """It waits for the sweep, and dies ``expired``."""
    job_id = queue.enqueue("work", expires=10)
    handle = claimed(queue)
    clock.advance(10)
    assert handle.release() if released else handle.retry("it broke", delay=0)
    assert queue.claim_one("other") is None
    assert State.PENDING == found(queue, job_id).state
    assert 1 == queue.sweep_expired()
    assert "expired" == found(queue, job_id).last_error


@clause("Q-CLAIM-4")
def test_a_job_that_expires_before_it_is_due_is_never_handed_out(queue: Queue, clock: Clock) -> None:
    """Due later than it expires, it goes from scheduled to dead."""
    job_id = queue.enqueue("work", delay=100, expires=10)
    clock.advance(1000)
    assert queue.claim_one("other") is None
    assert 1 == queue.sweep_expired()
    assert ("expired", State.DEAD) == (found(queue, job_id).last_error, found(queue, job_id).state)


@clause("Q-5", "Q-CLAIM-6")
def test_a_sweep_buries_what_has_lapsed_without_budget(queue: Queue, clock: Clock) -> None:
    """A worker that died on the last attempt leaves a job that the sweep finds and counts; one with budget left stays."""
    spent = queue.enqueue("spent", max_attempts=1)
    budget = queue.enqueue("budget", max_attempts=2)
    deadline = queue.claim_batch("worker-1", 2)[0].deadline
    clock.set(deadline)
    assert 0 == queue.sweep_expired()
    clock.set(deadline + MICROSECOND)
    assert 1 == queue.sweep_expired()
    job = found(queue, spent)
    assert (State.DEAD, "max attempts exceeded", 1) == (job.state, job.last_error, job.attempts)
    assert State.PROCESSING == found(queue, budget).state
    assert budget == claimed(queue).id


@clause("Q-5", "Z-8")
def test_a_job_both_expired_and_exhausted_is_swept_once(queue: Queue, clock: Clock, peek: Peek) -> None:
    """It is dead with one of the two reasons, and counted once."""
    job_id = queue.enqueue("work", max_attempts=1, expires=5)
    claimed(queue)
    clock.advance(3600)
    assert 1 == queue.sweep_expired()
    assert found(queue, job_id).last_error in {"expired", "max attempts exceeded"}
    assert [(job_id, "dead")] == [(row.id, row.table) for row in peek()]


@clause("Q-5")
@pytest.mark.parametrize("seconds", [0, 10])
def test_a_sweep_deletes_the_dead_past_their_own_retention(
    seconds: int, store: Store, queue_name: str, clock: Clock, peek: Peek
) -> None:
    """Retention counts from the death, to the microsecond; what is deleted isn't counted; ``None`` keeps for ever."""
    forever = store.queue(queue_name).enqueue("forever")
    brief = store.queue(queue_name, dead_letter_retention=seconds)
    brief.enqueue("brief")
    for handle in brief.claim_batch("worker-1", 2):
        assert handle.fail()
    if seconds:
        clock.advance(timedelta(seconds=seconds) - MICROSECOND)
        assert 0 == brief.sweep_expired()
        assert 2 == len(peek())
        clock.advance(MICROSECOND)
    assert 0 == brief.sweep_expired()
    assert [forever] == [row.id for row in peek()]


@clause("Q-5")
def test_retention_may_be_as_long_as_any_duration(store: Store, queue_name: str, clock: Clock) -> None:
    """A hundred years from now is an instant like any other."""
    queue = store.queue(queue_name, dead_letter_retention=timedelta(days=36_525))
    queue.enqueue("work")
    assert claimed(queue).fail()
    clock.advance(timedelta(days=36_525) - MICROSECOND)
    assert (0, 1) == (queue.sweep_expired(), queue.stats().dead)
    clock.advance(MICROSECOND)
    assert (0, 0) == (queue.sweep_expired(), queue.stats().dead)


@clause("Q-5", "Z-16")
def test_a_sweep_moves_more_than_one_batch_holds(queue: Queue, clock: Clock, peek: Peek) -> None:
    """Thousands of expired jobs go in one call, and the number is the whole."""
    queue.enqueue_many(range(2_345), expires=1)
    queue.enqueue_many(range(5))
    clock.advance(1)
    assert 2_345 == queue.sweep_expired()
    assert Counter(dead=2_345, live=5) == Counter(row.table for row in peek())


@clause("Z-8", "Q-5")
def test_a_sweep_in_a_transaction_does_one_bounded_batch(store: Store, queue: Queue, clock: Clock, peek: Peek) -> None:
    """It returns the size of its batch, which is bounded, and repeated it comes to the end."""
    queue.enqueue_many(range(2_345), expires=1)
    clock.advance(1)
    sizes: list[int] = []
    while True:
        with store.transaction() as tx:
            size = tx.queue(queue.name).sweep_expired()
        if size == 0:
            break
        sizes.append(size)
        assert sum(sizes) == sum(row.table == "dead" for row in peek())
    assert 2_345 == sum(sizes)
    assert len(sizes) > 1


@clause("Z-8", "Q-6")
def test_a_purge_in_a_transaction_does_one_bounded_batch(store: Store, queue: Queue, peek: Peek) -> None:
    """It returns the size of its batch, and a rollback brings the rows back."""
    queue.enqueue_many(range(2_345))
    with leaving(), store.transaction() as tx:
        assert 0 < tx.queue(queue.name).purge(State.PENDING) < 2_345
        raise Leave
    assert 2_345 == len(peek())
    with store.transaction() as tx:
        size = tx.queue(queue.name).purge(State.PENDING)
    assert 2_345 - size == len(peek())


@clause("Z-16", "Q-5")
def test_a_sweep_keeps_to_its_own_queue(store: Store, queue: Queue, clock: Clock, peek: Peek) -> None:
    """Another queue's expired, stranded and outlived jobs are its own affair."""
    other = store.queue("another", dead_letter_retention=0, max_attempts=1)
    other.enqueue_many(["dead", "stranded"], priority=1)
    other.enqueue("expired", expires=1)
    dead, _ = other.claim_batch("worker-1", 2)
    assert dead.fail()
    clock.advance(3600)
    before = peek()
    assert 0 == queue.sweep_expired()
    assert before == peek()
    assert 2 == other.sweep_expired()
    assert [] == peek()
