"""What a job may say for itself (O-2, O-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest

from alkstore import Item, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.harness import Row
from contract_tests.steps import found
from contract_tests.travel import MICROSECOND, Clock

CENTURY = timedelta(days=36_525)
HOUR = timedelta(hours=1)


@clause("O-2")
@pytest.mark.parametrize("priority", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_a_priority_is_any_signed_32_bit_integer(queue: Queue, worker: str, priority: int) -> None:
    """It comes back on the record and on the handle."""
    job = found(queue, queue.enqueue("work", priority=priority))
    handle = queue.claim_one(worker)

    assert handle is not None
    assert (priority, priority) == (job.priority, handle.priority)


@clause("O-2")
def test_a_job_may_have_a_budget_of_its_own(store: Store, worker: str) -> None:
    """It goes before the handle's, both ways."""
    queue = store.queue("emails", max_attempts=3)

    assert 1 == found(queue, queue.enqueue("fewer", max_attempts=1)).max_attempts
    assert 9 == found(queue, queue.enqueue("more", max_attempts=9)).max_attempts
    assert 2**31 - 1 == found(queue, queue.enqueue("most", max_attempts=2**31 - 1)).max_attempts
    assert 3 == found(queue, queue.enqueue("as ever")).max_attempts


HEADERS: dict[str, dict[str, str]] = {
    "one": {"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    "none": {},
    "32 of them": {f"header-{number}": str(number) for number in range(32)},
    "8 KiB": {"k" * 192: "v" * 8_000},
    "8 KiB of two-byte characters": {"": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 4_096},
    "odd texts": {"": "", "\0": "a\0b", "\n": "\x1f", "quote'\"": "back\\slash", "\N{PILE OF POO}": "\uffff"},
    "in order": {"b": "1", "a": "2", "c": "3"},
}


@clause("O-2")
@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
def test_headers_come_back_as_they_were(queue: Queue, worker: str, headers: dict[str, str]) -> None:
    """On the record and on the handle, in the same order, whatever text they hold."""
    job = found(queue, queue.enqueue("work", headers=headers))
    handle = queue.claim_one(worker)

    assert handle is not None
    assert list(headers.items()) == list(job.headers.items()) == list(handle.headers.items())


@clause("O-2")
def test_a_jobs_expiry_counts_from_now(queue: Queue, clock: Clock) -> None:
    """From the enqueue, and not from when the job is due."""
    job = found(queue, queue.enqueue("work", delay=HOUR, expires=timedelta(minutes=5)))

    assert (clock() + HOUR, clock() + timedelta(minutes=5)) == (job.run_at, job.expires_at)
    assert found(queue, queue.enqueue("work")).expires_at is None


@clause("O-2", "O-4")
def test_none_is_as_if_not_given(queue: Queue, clock: Clock) -> None:
    """For each of a job's options."""
    nothing: dict[str, Any] = dict.fromkeys(["delay", "run_at", "priority", "expires", "max_attempts", "headers"], None)
    job = found(queue, queue.enqueue("work", **nothing))

    assert (clock(), 0, None, 5, {}) == (job.run_at, job.priority, job.expires_at, job.max_attempts, dict(job.headers))


class Unreadable(Mapping[str, str]):
    """A mapping that isn't text to text."""

    def __getitem__(self, key: str) -> str:
        return cast(str, 1)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


BAD_JOB_OPTIONS: dict[str, dict[str, object]] = {
    "an unknown option": {"colour": "red"},
    "a handle's option": {"visibility_timeout": 5},
    "a misspelt option": {"runat": datetime(2031, 1, 1, tzinfo=UTC)},
    "priority of True": {"priority": True},
    "priority of False": {"priority": False},
    "priority of 1.0": {"priority": 1.0},
    "priority as text": {"priority": "1"},
    "priority past 32 bits": {"priority": 2**31},
    "priority below 32 bits": {"priority": -(2**31) - 1},
    "priority past anything": {"priority": 10**5_000},
    "no attempts": {"max_attempts": 0},
    "attempts of True": {"max_attempts": True},
    "attempts of 2.0": {"max_attempts": 2.0},
    "attempts past 32 bits": {"max_attempts": 2**31},
    "run_at naive": {"run_at": datetime(2031, 1, 1)},  # noqa: DTZ001 - that is the point
    "run_at as a number": {"run_at": 1_900_000_000},
    "run_at as text": {"run_at": "2031-01-01T00:00:00Z"},
    "run_at as a timedelta": {"run_at": timedelta(1)},
    "run_at before 1970": {"run_at": datetime(1970, 1, 1, tzinfo=UTC) - MICROSECOND},
    "run_at before 1970 in UTC": {"run_at": datetime(1970, 1, 1, tzinfo=timezone(HOUR))},
    "run_at in the year 1": {"run_at": datetime.min.replace(tzinfo=timezone(HOUR))},
    "run_at past 9999 in UTC": {"run_at": datetime.max.replace(tzinfo=timezone(-HOUR))},
    "run_at wrong beside a delay that wins": {"run_at": "soon", "delay": 5},
    "33 headers": {"headers": {f"header-{number}": "" for number in range(33)}},
    "headers over 8 KiB": {"headers": {"k" * 192: "v" * 8_001}},
    "headers over 8 KiB of UTF-8": {"headers": {"k": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 4_096}},
    "a header that is a number": {"headers": {"a": 1}},
    "a header's key that is a number": {"headers": {1: "a"}},
    "a header of bytes": {"headers": {"a": b"a"}},
    "a header with a lone surrogate": {"headers": {"a": "\ud800"}},
    "a header's key with a lone surrogate": {"headers": {"\ud800": "a"}},
    "headers as pairs": {"headers": [("a", "b")]},
    "headers as text": {"headers": "a=b"},
    "headers of a strange kind": {"headers": Unreadable()},
}


@clause("O-4", "O-2")
@pytest.mark.parametrize("options", BAD_JOB_OPTIONS.values(), ids=BAD_JOB_OPTIONS.keys())
def test_bad_job_options_are_refused_and_named_and_nothing_is_written(
    queue: Queue, peek: Callable[[], list[Row]], options: dict[str, Any]
) -> None:
    """For one job, for all of many, and for the last one of many."""
    naming = next(iter(options))

    with pytest.raises(ValidationError, match=naming):
        queue.enqueue("work", **options)
    with pytest.raises(ValidationError, match=naming):
        queue.enqueue_many(["work", "more work"], **options)
    with pytest.raises(ValidationError, match=naming):
        queue.enqueue_many(["work", Item("more work", **options)])
    with pytest.raises(ValidationError, match=naming):
        queue.enqueue_many([], **options)

    assert [] == peek()


@clause("Z-1", "O-4")
def test_wrong_types_of_other_arguments_are_refused(queue: Queue, worker: str) -> None:
    """Ids, counts, states, limits and errors."""
    queue.enqueue("work")
    handle = queue.claim_one(worker)
    assert handle is not None
    anything = cast(Any, queue)

    for refused in cast(
        list[Callable[[], object]],
        [
            lambda: anything.claim_batch(worker, True),
            lambda: anything.claim_batch(worker, 1.0),
            lambda: anything.claim_batch(worker, "1"),
            lambda: anything.claim_batch(worker, None),
            lambda: anything.get_job("1"),
            lambda: anything.get_job(True),
            lambda: anything.get_job(1.0),
            lambda: anything.cancel(None),
            lambda: anything.retry_dead("1"),
            lambda: anything.handle("1", 1),
            lambda: anything.handle(1, None),
            lambda: anything.purge("gone"),
            lambda: anything.purge(None),
            lambda: anything.purge(""),
            lambda: anything.jobs("PENDING"),
            lambda: anything.jobs(after="1"),
            lambda: anything.jobs(limit="1"),
            lambda: anything.jobs(limit=True),
            lambda: anything.jobs(limit=10_001),
            lambda: anything.ack_batch(5),
            lambda: anything.ack_batch("5"),
            lambda: anything.ack_batch(["5"]),
            lambda: anything.ack_batch([None]),
            lambda: anything.ack_batch([True]),
            lambda: cast(Any, handle).fail(5),
            lambda: cast(Any, handle).retry(b"no"),
        ],
    ):
        with pytest.raises(ValidationError):
            refused()
    assert handle.ack()


@clause("Z-1")
def test_a_wrong_name_is_refused_even_where_nothing_is_asked_for(queue: Queue) -> None:
    """Arguments are looked at before ``n <= 0`` makes the call an empty one."""
    with pytest.raises(ValidationError):
        queue.claim_batch("", 0)
    with pytest.raises(ValidationError):
        queue.claim_batch("", -1)
