"""What everybody would otherwise decide differently, where it concerns handles and queues (Z-1, Z-2, Z-5 to Z-7, Z-11, Z-12)."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from alkstore import EngineBusyError, State, StoreClosedError, ValidationError
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.clauses import clause
from contract_tests.compare import micros
from contract_tests.fixtures import OpenStore
from contract_tests.steps import Leave, Peek, claimed, found, leaving
from contract_tests.travel import MICROSECOND, Clock

CENTURY = timedelta(days=36_525)

WRONG_DURATIONS: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -0.1,
    -MICROSECOND,
    CENTURY + MICROSECOND,
    10**30,
    True,
    "5",
    Decimal(5),
    b"5",
]

DURATIONS: dict[str, Callable[[JobHandle, Any], bool]] = {
    "heartbeat": lambda handle, value: handle.heartbeat(extend=value),
    "retry": lambda handle, value: handle.retry(delay=value),
    "release": lambda handle, value: handle.release(delay=value),
}


# --- Z-1: durations, and the order of checks ---------------------------------------------------------------------------


@clause("Z-1", "O-4", "J-1")
@pytest.mark.parametrize("take", DURATIONS.values(), ids=DURATIONS.keys())
def test_a_wrong_duration_is_refused_and_changes_nothing(
    take: Callable[[JobHandle, Any], bool], queue: Queue, peek: Peek
) -> None:
    """It is a ``ValidationError``, before anything is written, and the claim is as good as before."""
    queue.enqueue("work")
    handle = claimed(queue)
    before = (peek(), found(queue, handle.id))
    for value in WRONG_DURATIONS:
        with pytest.raises(ValidationError):
            raise AssertionError(f"{value!r} was taken: {take(handle, value)}")
        assert before == (peek(), found(queue, handle.id))
    assert handle.ack()


@clause("Z-1", "J-3")
def test_a_heartbeat_extends_by_more_than_nothing(queue: Queue) -> None:
    """An ``extend`` of 0, or of what rounds to it, is a ``ValidationError``."""
    queue.enqueue("work")
    handle = claimed(queue)
    for value in (0, 0.0, timedelta(0), 1e-9):
        with pytest.raises(ValidationError):
            handle.heartbeat(extend=value)
    assert handle.ack()


@clause("Z-1", "J-3", "J-4", "J-6")
@pytest.mark.parametrize("take", DURATIONS.values(), ids=DURATIONS.keys())
def test_a_duration_may_be_a_century(take: Callable[[JobHandle, Any], bool], queue: Queue, clock: Clock) -> None:
    """The longest duration is taken exactly."""
    job_id = queue.enqueue("work")
    assert take(claimed(queue), CENTURY)
    job = found(queue, job_id)
    assert clock() + CENTURY == (job.claim_expires_at or job.run_at)
    clock.advance(CENTURY)
    assert (0, 1) == (queue.stats().dead, queue.stats().ready + queue.stats().processing)


@clause("Z-1")
@pytest.mark.parametrize("take", DURATIONS.values(), ids=DURATIONS.keys())
def test_a_duration_is_kept_to_the_nearest_microsecond(
    take: Callable[[JobHandle, Any], bool], queue: Queue, clock: Clock
) -> None:
    """Seconds as a float are rounded, not cut off."""
    for seconds, expected in [(0.000_001_4, 1), (0.000_001_6, 2), (1.000_001, 1_000_001), (4.35, 4_350_000)]:
        job_id = queue.enqueue("work", priority=1)
        assert take(claimed(queue), seconds)
        job = found(queue, job_id)
        assert expected == micros(job.claim_expires_at or job.run_at) - micros(clock())


@clause("Z-1", "S-3")
def test_a_closed_store_is_noticed_before_a_wrong_argument(
    open_store: OpenStore, queue_name: str, clock: Clock
) -> None:
    """Whatever else is wrong with a call, a closed store is what it says, for queues, handles and transactions."""
    store = open_store(clock=clock)
    queue = store.queue(queue_name)
    queue.enqueue("work")
    handle = claimed(queue)
    transaction = store.transaction()
    store.close()
    wrong: Any = object()
    calls: list[Callable[[], object]] = [
        lambda: store.queue(""),
        lambda: store.get_job(wrong),
        lambda: queue.enqueue(wrong, priority=wrong),
        lambda: queue.enqueue_many(wrong),
        lambda: queue.claim_one(""),
        lambda: queue.claim_batch("", 0),
        lambda: queue.claim_batch("worker", 0),
        lambda: queue.ack_batch(wrong),
        lambda: queue.ack_batch([]),
        lambda: queue.cancel(wrong),
        lambda: queue.get_job(wrong),
        lambda: queue.jobs(wrong),
        lambda: queue.jobs(limit=0),
        lambda: queue.purge(wrong),
        lambda: queue.retry_dead(wrong),
        lambda: queue.handle(wrong, wrong),
        handle.ack,
        lambda: handle.heartbeat(extend=-1),
        lambda: handle.retry(wrong),
        lambda: handle.fail(wrong),
        lambda: handle.release(delay=-1),
        transaction.__enter__,
        lambda: handle.transaction().__enter__(),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(StoreClosedError):
            raise AssertionError(f"call {number} gave {call()!r}")


@clause("Z-1", "Q-CLAIM-1")
def test_arguments_are_checked_before_n_is_found_to_be_nothing(queue: Queue, peek: Peek) -> None:
    """A wrong worker id is refused even where nothing is asked for."""
    queue.enqueue("work")
    before = peek()
    for n in (0, -1, -(10**30)):
        with pytest.raises(ValidationError):
            queue.claim_batch("_mine", n)
        assert [] == queue.claim_batch("worker-1", n)
    assert before == peek()


@clause("Z-1", "Q-CLAIM-1")
def test_n_is_a_whole_number(queue: Queue) -> None:
    """Anything else is a ``ValidationError``, and nothing is claimed."""
    queue.enqueue("work")
    wrong: list[Any] = [True, 1.0, "1", None]
    for n in wrong:
        with pytest.raises(ValidationError):
            queue.claim_batch("worker-1", n)
    assert 1 == queue.stats().ready


# --- Z-2: a queue's block ----------------------------------------------------------------------------------------------------


@clause("Z-2", "O-1")
def test_leaving_a_queues_block_keeps_its_claims(store: Store, queue_name: str) -> None:
    """The handle is the queue itself, usable inside and afterwards, and what it claimed stays claimed."""
    queue = store.queue(queue_name)
    with queue as same:
        assert same is queue
        same.enqueue_many(["a", "b"])
        handle = claimed(same)
    assert State.PROCESSING == found(queue, handle.id).state
    assert handle.heartbeat()
    assert handle.ack()
    assert claimed(queue).ack()
    with queue:
        queue.enqueue("again")
    assert 1 == queue.stats().ready


@clause("Z-2")
def test_an_exception_in_a_queues_block_goes_on_up(store: Store, queue_name: str) -> None:
    """The block is no transaction: what was enqueued stays, and the exception comes out."""
    with leaving(), store.queue(queue_name) as queue:
        queue.enqueue("a")
        raise Leave
    assert 1 == store.queue(queue_name).stats().ready


# --- Z-5, Z-6, Z-7: errors and acks ---------------------------------------------------------------------------------------------


@clause("Z-5", "O-4")
def test_an_error_is_a_text_or_an_exception(queue: Queue) -> None:
    """Anything else is a ``ValidationError``, and the claim is as good as before."""
    queue.enqueue("work")
    handle = claimed(queue)
    wrong: list[Any] = [1, b"bytes", ValueError, ["x"]]
    for error in wrong:
        with pytest.raises(ValidationError):
            handle.fail(error)
        with pytest.raises(ValidationError):
            handle.retry(error)
    assert handle.ack()


@clause("Z-6", "J-1")
def test_an_ack_may_be_called_again(queue: Queue) -> None:
    """However often: the first is granted, and the others are refusals and not errors."""
    queue.enqueue("work")
    handle = claimed(queue)
    assert [True, False, False] == [handle.ack() for _ in range(3)]


@clause("Z-7", "O-4")
def test_a_batch_of_acks_takes_handles_and_ids_only(queue: Queue) -> None:
    """Anything else is a ``ValidationError``, and nothing in the batch is acked."""
    queue.enqueue("work")
    handle = claimed(queue)
    wrong: list[Any] = [[handle, entry] for entry in ("1", None, 1.0, True)]
    wrong += ["12", b"12", {1: 2}, 7, None]
    for entries in wrong:
        with pytest.raises(ValidationError):
            queue.ack_batch(entries)
    assert handle.ack()


# --- Z-11, Z-12 ----------------------------------------------------------------------------------------------------------------


@clause("Z-11", "Q-CLAIM-4", needs="processes")
def test_a_clock_rules_its_own_store_only(store: Store, open_store: OpenStore, queue_name: str, clock: Clock) -> None:
    """Two stores of one place, each by its own clock: what is due in one isn't in the other, and deadlines lapse likewise."""
    ahead = Clock(clock() + timedelta(hours=1))
    here, there = store.queue(queue_name), open_store(clock=ahead).queue(queue_name)
    job_id = here.enqueue("work", delay=timedelta(minutes=30))
    assert here.claim_one("worker-1") is None
    assert (1, 0) == (here.stats().scheduled, there.stats().scheduled)
    handle = claimed(there)
    assert (job_id, ahead() + timedelta(seconds=60)) == (handle.id, handle.deadline)
    ahead.set(handle.deadline + MICROSECOND)
    assert False is handle.ack()
    assert here.handle(handle.id, handle.token).ack()


@clause("Z-12", "S-5", needs=("processes", "transactions"))
def test_waiting_for_a_lock_ends_after_the_lock_timeout(
    store: Store, open_store: OpenStore, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """It ends in ``EngineBusyError``, nothing has happened, and the same call works once the lock is gone."""
    hurried = open_store(clock=clock, lock_timeout=0.2).queue(queue.name)
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    with ThreadPoolExecutor(1) as thread, handle.transaction():
        before = peek()
        with pytest.raises(EngineBusyError):
            thread.submit(hurried.cancel, job_id).result(timeout=60)
        assert before == peek()
    assert False is hurried.cancel(job_id)
    assert [] == peek()
    other = hurried.enqueue("another")
    assert hurried.cancel(other)
