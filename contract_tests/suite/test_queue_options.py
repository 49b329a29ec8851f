"""A handle's options, and the stamps of its jobs (O-1, O-4)."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, cast

import pytest

from alkstore import Backoff, QueueOptions, ValidationError
from alkstore.protocols import Store
from contract_tests.clauses import clause
from contract_tests.steps import found
from contract_tests.travel import Clock

CENTURY = timedelta(days=36_525)
HOUR = timedelta(hours=1)


@clause("O-1")
def test_the_defaults(store: Store, worker: str) -> None:
    """A minute's lease, five attempts, a curve of base 5 and cap 3600, and dead jobs kept for ever."""
    queue = store.queue("emails")

    assert QueueOptions() == queue.options
    assert (timedelta(seconds=60), 5, Backoff(base=5, cap=3600), None) == (
        queue.options.visibility_timeout,
        queue.options.max_attempts,
        queue.options.backoff,
        queue.options.dead_letter_retention,
    )
    job = found(queue, queue.enqueue("hello"))
    assert (timedelta(seconds=60), 5, 0, {}) == (
        job.visibility_timeout,
        job.max_attempts,
        job.priority,
        dict(job.headers),
    )


@clause("O-1")
def test_options_are_given_whole_or_as_keywords(store: Store) -> None:
    """Both ways make the same handle; durations read back as ``timedelta``."""
    options = QueueOptions(
        visibility_timeout=1.5, max_attempts=3, backoff=Backoff(base=2, cap=9), dead_letter_retention=timedelta(days=7)
    )

    assert (
        options
        == store.queue("emails", options).options
        == store.queue(
            "emails",
            visibility_timeout=timedelta(seconds=1, milliseconds=500),
            max_attempts=3,
            backoff=Backoff(2, 9),
            dead_letter_retention=7 * 86_400,
        ).options
    )
    assert timedelta(seconds=1.5) == options.visibility_timeout


@clause("O-1")
def test_a_claim_and_a_heartbeat_go_by_the_jobs_own_visibility_timeout(store: Store, clock: Clock, worker: str) -> None:
    """Not by that of the handle that claims it, nor by a handle made since."""
    store.queue("emails", visibility_timeout=7).enqueue("hello")
    other = store.queue("emails", visibility_timeout=7_000)

    handle = other.claim_one(worker)

    assert handle is not None
    assert clock() + timedelta(seconds=7) == handle.deadline == handle.job.claim_expires_at
    assert timedelta(seconds=7) == handle.job.visibility_timeout
    clock.advance(3)
    assert handle.heartbeat()
    assert clock() + timedelta(seconds=7) == handle.deadline == found(other, handle.id).claim_expires_at


@clause("O-1")
def test_a_job_keeps_its_own_budget(store: Store, worker: str) -> None:
    """Two attempts stamped are two attempts, whatever the handle that claims and retries would allow."""
    job_id = store.queue("emails", max_attempts=2).enqueue("hello")
    generous = store.queue("emails", max_attempts=50)

    for attempt, state in [(1, "pending"), (2, "dead")]:
        handle = generous.claim_one(worker)
        assert handle is not None
        assert attempt == handle.attempt
        assert handle.retry("no", delay=0)
        assert state == found(generous, job_id).state


@clause("O-1", "J-7")
def test_a_job_keeps_its_own_curve(store: Store, clock: Clock, worker: str) -> None:
    """A retry waits by the base and the cap that the job was stamped with, both of them."""
    slow = store.queue("emails", backoff=Backoff(base=1_000, cap=1_500), max_attempts=9).enqueue("slow")
    quick = store.queue("emails", backoff=Backoff(base=1, cap=1), max_attempts=9)
    # One draw alone could be right by chance; the ranges have no value in common.
    for low, high in [(500, 1_000), (750, 1_500), (750, 1_500)]:
        handle = quick.claim_one(worker)
        assert handle is not None
        assert handle.retry()
        wait = (found(quick, slow).run_at - clock()).total_seconds()
        assert low <= wait <= high
        clock.advance(wait)


@clause("O-1", "Q-5")
def test_a_job_keeps_its_own_retention(store: Store, clock: Clock, worker: str) -> None:
    """Dead jobs go when their own time has come, or never, whichever handle sweeps."""
    brief = store.queue("emails", dead_letter_retention=60).enqueue("brief")
    for_ever = store.queue("emails").enqueue("for ever")
    sweeper = store.queue("emails", dead_letter_retention=1)
    for handle in sweeper.claim_batch(worker, 2):
        assert handle.fail("no")

    clock.advance(59)
    assert 0 == sweeper.sweep_expired()
    assert [brief, for_ever] == [job.id for job in sweeper.jobs()]
    clock.advance(CENTURY)
    assert 0 == sweeper.sweep_expired()
    assert [for_ever] == [job.id for job in sweeper.jobs()]


@clause("O-1")
def test_options_and_handles_are_frozen(store: Store) -> None:
    """Nobody changes the options of a handle that others use."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast(Any, store.queue("emails").options).max_attempts = 9
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast(Any, Backoff()).base = 9


BAD_QUEUE_FIELDS: dict[str, dict[str, object]] = {
    "an unknown field": {"priority": 3},
    "a misspelt field": {"max_attemps": 3},
    "no attempts": {"max_attempts": 0},
    "negative attempts": {"max_attempts": -1},
    "attempts of True": {"max_attempts": True},
    "attempts of 3.0": {"max_attempts": 3.0},
    "attempts as text": {"max_attempts": "3"},
    "attempts of None": {"max_attempts": None},
    "attempts past 32 bits": {"max_attempts": 2**31},
    "backoff as a number": {"backoff": 5},
    "backoff as a pair": {"backoff": (5, 3600)},
    "backoff of None": {"backoff": None},
    "a lease of None": {"visibility_timeout": None},
}


@clause("O-4", "O-1")
@pytest.mark.parametrize("fields", BAD_QUEUE_FIELDS.values(), ids=BAD_QUEUE_FIELDS.keys())
def test_bad_queue_options_are_refused_and_named(store: Store, fields: dict[str, Any]) -> None:
    """When the handle is made, with the field's name in the message."""
    with pytest.raises(ValidationError, match=next(iter(fields))):
        store.queue("emails", **fields)


@clause("O-4", "O-1")
def test_options_whole_and_as_keywords_at_once_are_refused(store: Store) -> None:
    """Nobody could say which of them rules."""
    with pytest.raises(ValidationError):
        store.queue("emails", QueueOptions(), max_attempts=3)
    with pytest.raises(ValidationError):
        store.queue("emails", cast(Any, {"max_attempts": 3}))


@clause("O-4", "J-7")
@pytest.mark.parametrize(
    ("base", "cap"),
    [(0, 10), (-1, 10), (5, 0), (5, 3601), (5, -1), (True, 10), (5, True), (1.0, 10), (5, 10.0), ("5", 10), (None, 10)],
    ids=str,
)
def test_a_curve_out_of_range_is_refused(base: Any, cap: Any, store: Store) -> None:
    """The base is a whole number of seconds from 1, the cap one from 1 to 3600."""
    with pytest.raises(ValidationError, match="backoff"):
        Backoff(base=base, cap=cap)
