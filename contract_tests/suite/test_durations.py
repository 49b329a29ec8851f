"""Durations, and the order of checks (Z-1, O-4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore import Item, QueueOptions, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.harness import Row
from contract_tests.scale import examples
from contract_tests.steps import found
from contract_tests.travel import MICROSECOND, Clock

CENTURY = timedelta(days=36_525)
HOUR = timedelta(hours=1)

# Not wrong as such: each is refused wherever a duration is asked for.
BAD_DURATIONS: dict[str, object] = {
    "negative seconds": -1,
    "a negative fraction": -0.000001,
    "a negative timedelta": -MICROSECOND,
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "over 100 years": CENTURY + MICROSECOND,
    "over 100 years, in seconds": CENTURY.total_seconds() + 1,
    "a huge int": 10**400,
    "a huge float": 1e300,
    "text": "60",
    "a bool": True,
    "a datetime": datetime(2031, 1, 1, tzinfo=UTC),
    "a list": [1],
}
bad_durations = pytest.mark.parametrize("wrong", BAD_DURATIONS.values(), ids=BAD_DURATIONS.keys())

NOTHINGS: dict[str, object] = {"0": 0, "0.0": 0.0, "no time": timedelta(0), "under half a microsecond": 0.0000004}
nothings = pytest.mark.parametrize("nothing", NOTHINGS.values(), ids=NOTHINGS.keys())


@clause("Z-1", "O-4")
@bad_durations
def test_bad_durations_are_refused_wherever_one_is_asked_for(
    store: Store, queue: Queue, worker: str, peek: Callable[[], list[Row]], wrong: Any
) -> None:
    """In a handle's options, a job's options, and the operations of a handle, which change nothing then."""
    job_id = queue.enqueue("work")
    handle = queue.claim_one(worker)
    assert handle is not None
    before = peek()

    for refused in cast(
        list[Callable[[], object]],
        [
            lambda: store.queue("emails", visibility_timeout=wrong),
            lambda: store.queue("emails", dead_letter_retention=wrong),
            lambda: QueueOptions(visibility_timeout=wrong),
            lambda: queue.enqueue(1, delay=wrong),
            lambda: queue.enqueue(1, expires=wrong),
            lambda: queue.enqueue_many([1], delay=wrong),
            lambda: queue.enqueue_many([1, Item(2, expires=wrong)]),
            lambda: queue.enqueue_many([], delay=wrong),
            lambda: handle.heartbeat(wrong),
            lambda: handle.retry(delay=wrong),
            lambda: handle.release(delay=wrong),
        ],
    ):
        with pytest.raises(ValidationError):
            refused()

    assert before == peek()
    assert "processing" == found(queue, job_id).state
    assert handle.ack()


@clause("Z-1", "O-2")
@nothings
def test_a_lease_an_extension_and_an_expiry_are_over_0(store: Store, queue: Queue, worker: str, nothing: Any) -> None:
    """A claim of no length would be nobody's, and a job that expires at once could never be handed out."""
    queue.enqueue("work")
    handle = queue.claim_one(worker)
    assert handle is not None

    with pytest.raises(ValidationError, match="visibility_timeout"):
        store.queue("emails", visibility_timeout=nothing)
    with pytest.raises(ValidationError, match="extend"):
        handle.heartbeat(nothing)
    with pytest.raises(ValidationError, match="expires"):
        queue.enqueue(1, expires=nothing)


@clause("Z-1")
@nothings
def test_a_delay_and_a_retention_may_be_nothing(store: Store, clock: Clock, worker: str, nothing: Any) -> None:
    """No delay is due at once; no retention is gone at the next sweep."""
    queue = store.queue("emails", dead_letter_retention=nothing)
    job_id = queue.enqueue("work", delay=nothing)
    assert clock() == found(queue, job_id).run_at

    handle = queue.claim_one(worker)
    assert handle is not None
    assert handle.retry(delay=nothing)
    again = queue.claim_one(worker)
    assert again is not None
    assert again.release(delay=nothing)
    last = queue.claim_one(worker)
    assert last is not None
    assert last.fail("no")
    assert 0 == queue.sweep_expired()
    assert queue.get_job(job_id) is None


@clause("Z-1")
def test_a_duration_may_be_100_years(store: Store, clock: Clock, worker: str) -> None:
    """All of them, at once, to the very microsecond."""
    queue = store.queue("emails", visibility_timeout=CENTURY, dead_letter_retention=CENTURY)
    later = queue.enqueue("later", delay=CENTURY)
    queue.enqueue("now", expires=CENTURY)

    assert clock() + CENTURY == found(queue, later).run_at
    handle = queue.claim_one(worker)
    assert handle is not None
    assert (clock() + CENTURY,) * 2 == (handle.deadline, handle.job.expires_at)
    assert handle.heartbeat(CENTURY.total_seconds())
    assert clock() + CENTURY == handle.deadline
    assert handle.retry("no", delay=CENTURY)
    assert clock() + CENTURY == found(queue, handle.id).run_at


@clause("Z-1")
@examples(200)
@given(micros=st.integers(min_value=1, max_value=CENTURY // MICROSECOND))
def test_a_timedelta_is_kept_to_the_microsecond(store: Store, clock: Clock, micros: int) -> None:
    """As the delay, the lease and the expiry of a job."""
    span = micros * MICROSECOND
    queue = store.queue("emails", visibility_timeout=span)

    job = found(queue, queue.enqueue("work", delay=span, expires=span))

    assert (span, clock() + span, clock() + span) == (job.visibility_timeout, job.run_at, job.expires_at)


@clause("Z-1")
@pytest.mark.parametrize(
    ("seconds", "micros"),
    [
        (0.1, 100_000),
        (1e-6, 1),
        (0.000_000_6, 1),
        (1.000_000_4, 1_000_000),
        (1.000_000_6, 1_000_001),
        (0.999_999_9, 1_000_000),
        (2**31 + 0.25, (2**31) * 1_000_000 + 250_000),
        (3, 3_000_000),
    ],
)
def test_seconds_are_taken_to_the_nearest_microsecond(store: Store, clock: Clock, seconds: float, micros: int) -> None:
    """A number of seconds is an ``int`` or a ``float``."""
    queue = store.queue("emails")

    assert clock() + micros * MICROSECOND == found(queue, queue.enqueue("work", delay=seconds)).run_at
