"""The retry curve, as seen through retries (J-7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from alkstore import Backoff
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.scale import examples
from contract_tests.travel import Clock


def bounds(attempt: int, base: int, cap: int) -> tuple[int, int]:
    """Say between which whole seconds the delay after an attempt lies, in the contract's words and Python's integers."""
    top = base
    for _ in range(attempt - 1):
        if top >= cap:
            break
        top *= 2
    top = min(cap, top)
    return -(-top // 2), top


def waited(queue: Queue, clock: Clock) -> float:
    """Claim a job, retry it, move the clock to when it is due again, and return the seconds in between."""
    handle = queue.claim_one("worker")
    assert handle is not None
    assert handle.retry("again")
    job = queue.get_job(handle.id)
    assert job is not None
    wait = job.run_at - clock()
    clock.set(job.run_at)
    return wait / timedelta(seconds=1)


@clause("J-7")
@examples(150)
@given(
    base=st.one_of(st.integers(1, 20), st.integers(1, 4_000), st.just(2**31 - 1)),
    cap=st.one_of(st.integers(1, 20), st.integers(1, 3_600)),
    attempts=st.integers(1, 14),
)
@example(base=5, cap=3_600, attempts=12)
@example(base=1, cap=1, attempts=3)
@example(base=2**31 - 1, cap=3_600, attempts=3)
def test_every_retrys_delay_lies_within_the_curve(
    store: Store, clock: Clock, queue_names: Callable[[], str], base: int, cap: int, attempts: int
) -> None:
    """For each attempt in turn: a whole number of seconds from half of the top, rounded up, to the top."""
    queue = store.queue(queue_names(), backoff=Backoff(base=base, cap=cap), max_attempts=attempts + 1)
    queue.enqueue("work")
    for attempt in range(1, attempts + 1):
        low, high = bounds(attempt, base, cap)

        seconds = waited(queue, clock)

        assert low <= seconds <= high
        assert seconds.is_integer()


@clause("J-7")
def test_the_curve_goes_on_for_any_attempt(store: Store, clock: Clock) -> None:
    """At the hundredth attempt it is at its cap, and nothing has overflowed."""
    queue = store.queue("emails", backoff=Backoff(base=1, cap=3_600), max_attempts=1_000)
    queue.enqueue("work")

    delays = [waited(queue, clock) for _ in range(100)]

    assert all(1_800 <= delay <= 3_600 for delay in delays[13:])


@clause("J-7")
def test_both_ends_are_drawn_and_all_between_alike(store: Store, clock: Clock) -> None:
    """Over many first attempts of base 5, the delays are 3, 4 and 5, none of them rare.

    Each is expected in a third of 600 draws; that one of them comes less than 120 times is 7 standard deviations away.
    """
    draws = 600
    queue = store.queue("emails", backoff=Backoff(base=5, cap=3_600))
    queue.enqueue_many([None] * draws)
    counts: dict[float, int] = {}
    for handle in queue.claim_batch("worker", draws):
        assert handle.retry()
    for job in queue.jobs(limit=draws):
        seconds = (job.run_at - clock()) / timedelta(seconds=1)
        counts[seconds] = counts.get(seconds, 0) + 1

    assert {3.0, 4.0, 5.0} == set(counts)
    assert min(counts.values()) >= draws // 5


@clause("J-7", "J-4")
def test_the_attempt_that_counts_is_the_jobs(store: Store, clock: Clock) -> None:
    """Lapsed attempts count, released ones don't, and a revived job begins anew."""
    queue = store.queue("emails", backoff=Backoff(base=64, cap=3_600), max_attempts=5)
    queue.enqueue("work")
    for _ in range(2):
        assert queue.claim_one("worker") is not None
        clock.advance(61)
    for _ in range(3):
        handle = queue.claim_one("worker")
        assert handle is not None
        assert handle.release()

    low, high = bounds(3, 64, 3_600)
    assert low <= waited(queue, clock) <= high

    handle = queue.claim_one("worker")
    assert handle is not None
    assert handle.fail()
    assert queue.retry_dead(handle.id)
    assert 32 <= waited(queue, clock) <= 64


@clause("J-7", "J-4")
def test_a_delay_that_is_given_replaces_the_curve(store: Store, clock: Clock) -> None:
    """Neither its cap nor its whole seconds hold then."""
    queue = store.queue("emails", backoff=Backoff(base=1, cap=1))
    job_id = queue.enqueue("work")
    handle = queue.claim_one("worker")
    assert handle is not None

    assert handle.retry(delay=timedelta(days=3, microseconds=7))

    job = queue.get_job(job_id)
    assert job is not None
    assert clock() + timedelta(days=3, microseconds=7) == job.run_at


@clause("J-7", "Q-8")
def test_a_rebuilt_handle_draws_from_the_same_curve(store: Store, clock: Clock) -> None:
    """It asks for the attempt and the stamps that it doesn't carry."""
    queue = store.queue("emails", backoff=Backoff(base=1_000, cap=3_600))
    job_id = queue.enqueue("work")
    for attempt in [1, 2, 3]:
        handle = queue.claim_one("worker")
        assert handle is not None
        assert store.queue("emails").handle(handle.id, handle.token).retry("no")
        job = queue.get_job(job_id)
        assert job is not None
        low, high = bounds(attempt, 1_000, 3_600)
        wait = (job.run_at - clock()).total_seconds()
        assert low <= wait <= high
        clock.advance(wait)
