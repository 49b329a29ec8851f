"""How options are resolved, and items (O-3, Z-9)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore import Item, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Row
from contract_tests.scale import examples
from contract_tests.steps import found
from contract_tests.travel import Clock

CENTURY = timedelta(days=36_525)
HOUR = timedelta(hours=1)


def after(start: datetime, instant: datetime | None) -> timedelta:
    """Return how long after the start an instant lies that has to be there."""
    assert instant is not None
    return instant - start


# --- O-3: resolving ----------------------------------------------------------------------------------------------


@clause("O-3")
@examples(100)
@given(delay=st.one_of(st.timedeltas(timedelta(0), CENTURY), st.floats(0, 10_000)))
def test_without_a_clock_of_its_own_a_jobs_times_differ_by_exactly_the_delay(
    open_store: OpenStore, stores: dict[str, Store], delay: timedelta | float
) -> None:
    """The database's clock is read once: ``run_at - created_at`` is the delay to the microsecond, the expiry too."""
    if not stores:
        stores["real"] = open_store()
    queue = stores["real"].queue("emails")
    span = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)

    job = found(queue, queue.enqueue("work", delay=delay, expires=7))
    at_once = found(queue, queue.enqueue("work"))

    assert (span, timedelta(seconds=7)) == (job.run_at - job.created_at, after(job.created_at, job.expires_at))
    assert at_once.created_at == at_once.run_at


@pytest.fixture
def stores() -> dict[str, Store]:
    """Keeps a store from one example to the next."""
    return {}


@clause("O-3")
def test_a_ticking_clock_is_read_once_for_an_enqueue(open_store: OpenStore, clock: Clock) -> None:
    """Even if it moves on at every reading, the job's times agree, and those of many jobs with each other."""
    store = open_store(clock=lambda: clock.advance(1))
    queue = store.queue("emails")

    job = found(queue, queue.enqueue("work", delay=60, expires=600))
    assert (timedelta(seconds=60), timedelta(seconds=600)) == (
        job.run_at - job.created_at,
        after(job.created_at, job.expires_at),
    )

    ids = queue.enqueue_many([number if number % 2 else Item(number, delay=60) for number in range(2_500)])
    assert 1 == len(
        {job.created_at for after in (0, 1_000, 2_000) for job in queue.jobs(after=ids[after] - 1, limit=500)}
    )


@clause("O-3", "Q-ENQ-3")
def test_without_a_clock_of_its_own_many_have_one_now(open_store: OpenStore) -> None:
    """However many chunks they take, the database's clock is read once for all of them."""
    queue = open_store().queue("emails")
    ids = queue.enqueue_many([number if number % 2 else Item(number, delay=60) for number in range(2_500)])

    jobs = queue.jobs(limit=2_500)

    assert ids == [job.id for job in jobs]
    assert 1 == len({job.created_at for job in jobs})
    assert {timedelta(0), timedelta(seconds=60)} == {job.run_at - job.created_at for job in jobs}


@clause("O-3")
def test_a_delay_wins_over_run_at(queue: Queue, clock: Clock) -> None:
    """Given together, the delay counts from now, one of nothing included."""
    job = found(queue, queue.enqueue("work", delay=5, run_at=clock() + HOUR))
    at_once = found(queue, queue.enqueue("work", delay=0, run_at=clock() + HOUR))

    assert clock() + timedelta(seconds=5) == job.run_at
    assert clock() == at_once.run_at


@clause("O-3")
@pytest.mark.parametrize(
    "run_at",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2031, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC),
        datetime(2031, 10, 26, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    ids=str,
)
def test_run_at_is_kept_as_given(queue: Queue, run_at: datetime) -> None:
    """To the microsecond, past or future, from 1970 to 9999, and in UTC on the way out."""
    job = found(queue, queue.enqueue("work", run_at=run_at))

    assert run_at == job.run_at
    assert timedelta(0) == job.run_at.utcoffset()


@clause("O-3")
def test_every_instant_of_a_record_is_aware_and_in_utc(queue: Queue, worker: str, clock: Clock) -> None:
    """Whatever the time zone that the clock gives them in."""
    clock.set(clock().astimezone(timezone(timedelta(hours=-8))))
    queue.enqueue("work", expires=HOUR)
    handle = queue.claim_one(worker)
    assert handle is not None
    job = handle.job

    instants = [job.created_at, job.run_at, job.expires_at, job.claim_expires_at, handle.deadline]
    assert [timedelta(0)] * 5 == [cast(datetime, instant).utcoffset() for instant in instants]
    assert handle.fail("no")
    died_at = found(queue, handle.id).died_at
    assert (timedelta(0), timedelta(0)) == (after(clock(), died_at), cast(datetime, died_at).utcoffset())


@clause("O-3")
def test_the_row_shows_resolved_values(
    queue: Queue, queue_name: str, clock: Clock, peek: Callable[[], list[Row]]
) -> None:
    """Instants where offsets were given, and defaults where nothing was."""
    job_id = queue.enqueue({"n": 1}, delay=60, expires=HOUR)
    plain_id = queue.enqueue([2])

    assert [
        Row(
            id=job_id,
            queue=queue_name,
            table="live",
            worker_id=None,
            attempts=0,
            created_at=clock(),
            run_at=clock() + timedelta(seconds=60),
            expires_at=clock() + HOUR,
            last_error=None,
            codec="json",
            payload=b'{"n":1}',
        ),
        Row(
            id=plain_id,
            queue=queue_name,
            table="live",
            worker_id=None,
            attempts=0,
            created_at=clock(),
            run_at=clock(),
            expires_at=None,
            last_error=None,
            codec="json",
            payload=b"[2]",
        ),
    ] == peek()


# --- Z-9: items --------------------------------------------------------------------------------------------------


@clause("Z-9", "Q-ENQ-3")
def test_keywords_are_defaults_that_an_item_may_override(queue: Queue, clock: Clock) -> None:
    """An item without an option has the keyword's; one with it has its own."""
    ids = queue.enqueue_many(
        [
            "plain",
            Item("all its own", priority=1, delay=1, expires=1, max_attempts=1, headers={"own": "yes"}),
            Item("nothing of its own"),
            Item("only a priority", priority=-3),
            Item("None is not given", priority=None, headers=None),
        ],
        priority=7,
        delay=60,
        expires=600,
        max_attempts=9,
        headers={"common": "yes"},
    )
    jobs = [found(queue, job_id) for job_id in ids]

    assert [7, 1, 7, -3, 7] == [job.priority for job in jobs]
    assert [60, 1, 60, 60, 60] == [(job.run_at - clock()).total_seconds() for job in jobs]
    assert [600, 1, 600, 600, 600] == [after(clock(), job.expires_at).total_seconds() for job in jobs]
    assert [9, 1, 9, 9, 9] == [job.max_attempts for job in jobs]
    common, own = {"common": "yes"}, {"own": "yes"}
    assert [common, own, common, common, common] == [dict(job.headers) for job in jobs]


@clause("Z-9", "O-3")
def test_an_item_that_says_when_replaces_the_common_word_on_it(queue: Queue, clock: Clock) -> None:
    """An item's ``run_at`` isn't beaten by a ``delay`` that was only the default, nor its ``delay`` by a ``run_at``."""
    by_delay = queue.enqueue_many([Item(1, run_at=clock() + HOUR), 2], delay=60)
    by_instant = queue.enqueue_many([Item(1, delay=60), 2], run_at=clock() + HOUR)

    assert [HOUR, timedelta(seconds=60)] == [found(queue, job_id).run_at - clock() for job_id in by_delay]
    assert [timedelta(seconds=60), HOUR] == [found(queue, job_id).run_at - clock() for job_id in by_instant]


@clause("Z-9")
def test_tuples_and_dicts_are_payloads_like_any_other(queue: Queue, worker: str) -> None:
    """Nothing in them is taken for an option, however much it looks like one."""
    queue.enqueue_many([{"payload": 1, "priority": 9}, ("pair", {"delay": 60}), ["list"], "text", None])

    assert [{"payload": 1, "priority": 9}, ["pair", {"delay": 60}], ["list"], "text", None] == [
        handle.payload for handle in queue.claim_batch(worker, 10)
    ]


@clause("Z-9")
@pytest.mark.parametrize("items", ["text", b"bytes", {"a": 1}, 5, None, Item(1)], ids=str)
def test_items_must_be_an_iterable_of_them(queue: Queue, peek: Callable[[], list[Row]], items: Any) -> None:
    """A text, bytes or a mapping would become a job a character or key, which nobody means."""
    with pytest.raises(ValidationError, match="items"):
        queue.enqueue_many(items)
    assert [] == peek()


@clause("Z-9", "Q-ENQ-1")
def test_one_item_is_no_payload_of_enqueue(queue: Queue) -> None:
    """``enqueue`` takes a payload, with its options as keywords."""
    with pytest.raises(ValidationError):
        queue.enqueue(Item("work", priority=3))
