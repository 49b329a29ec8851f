"""The engines' operations on several claims at once, which the front so far asks of one (see ``alkstore.engine``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alkstore import QueueOptions
from alkstore.clock import SECOND
from alkstore.engine import Executor
from alkstore.options import Stamps, resolve_enqueue
from alkstore.records import BuryRef, ClaimRef, JobRow, ReleaseRef, RetryRef, State
from alkstore.store import Store
from tests.harnesses import PostgresHarness, SqliteHarness

NOW = 1_800_000_000 * SECOND


@pytest.fixture(scope="module", params=[SqliteHarness, PostgresHarness], ids=["sqlite", "postgresql"])
def harness(request: pytest.FixtureRequest) -> Iterator[SqliteHarness | PostgresHarness]:
    """Either engine's harness, started."""
    harness = request.param()
    harness.start()
    yield harness
    harness.stop()


@pytest.fixture
def executor(harness: SqliteHarness | PostgresHarness) -> Iterator[Executor]:
    """The operations, each in a transaction of its own."""
    place = harness.new_place()
    store = harness.open(place)
    assert isinstance(store, Store)
    yield store.engine.executor()
    store.close()
    harness.drop_place(place)


@pytest.fixture
def claims(executor: Executor) -> list[JobRow]:
    """Three claimed jobs of the queue ``q``: two with budget left, and one without, the last."""
    job = resolve_enqueue(Stamps.of(QueueOptions()), "raw", b"", {})
    executor.insert("q", [job, job, job._replace(max_attempts=1)], NOW)
    rows = executor.claim("q", "w", 3, "exhausted", 1, 1, NOW).rows
    assert 3 == len(rows)
    return rows


def token(row: JobRow) -> int:
    assert row.token is not None
    return row.token


def states(executor: Executor) -> dict[int, tuple[State, str | None]]:
    return {row.id: (row.state, row.last_error) for row in executor.list("q", None, 0, 10)}


def test_many_deadlines_are_set_at_once(executor: Executor, claims: list[JobRow]) -> None:
    """Of the valid claims, whichever order they are named in; the stale one is left out (J-3)."""
    first, second, third = claims
    refs = [ClaimRef(third.id, token(third)), ClaimRef(second.id, token(second) + 1), ClaimRef(first.id, token(first))]
    assert {first.id: NOW + 5, third.id: NOW + 5} == executor.extend("q", refs, 5, NOW)
    own = NOW + 60 * SECOND
    assert {first.id: own, second.id: own} == executor.extend(
        "q", [ClaimRef(row.id, token(row)) for row in (second, first)], None, NOW
    )


def test_many_are_retried_at_once_and_the_spent_among_them_buried(executor: Executor, claims: list[JobRow]) -> None:
    """Each by its own delay, error and budget (J-4)."""
    first, second, third = claims
    refs = [
        RetryRef(third.id, token(third), 7, None),
        RetryRef(first.id, token(first), 5, "one"),
        RetryRef(second.id, token(second) + 1, 6, "two"),
    ]
    assert [first.id, third.id] == sorted(executor.retry("q", refs, "exhausted", NOW))
    assert {
        first.id: (State.PENDING, "one"),
        second.id: (State.PROCESSING, None),
        third.id: (State.DEAD, "exhausted"),
    } == states(executor)
    again = executor.get("q", first.id)
    assert again is not None
    assert NOW + 5 == again.run_at


def test_many_are_buried_at_once_and_revived_at_once(executor: Executor, claims: list[JobRow]) -> None:
    """Each with its own error; and all are pending again with nothing counted (J-5, Q-6)."""
    refs = [BuryRef(row.id, token(row), f"error {row.id}") for row in reversed(claims)]
    ids = sorted(row.id for row in claims)
    assert ids == sorted(executor.bury("q", refs, NOW))
    assert [] == executor.bury("q", refs, NOW)
    assert {job_id: (State.DEAD, f"error {job_id}") for job_id in ids} == states(executor)
    assert ids == sorted(executor.revive("q", [*ids, ids[-1] + 1], NOW))
    assert {0} == {row.attempts for row in executor.list("q", State.PENDING, 0, 10)}


def test_many_are_released_at_once(executor: Executor, claims: list[JobRow]) -> None:
    """Each with its attempt given back, at its old place or delayed (J-6)."""
    first, second, third = claims
    refs = [
        ReleaseRef(third.id, token(third), None),
        ReleaseRef(first.id, token(first), 9),
        ReleaseRef(second.id, token(second) + 1, None),
    ]
    assert [first.id, third.id] == sorted(executor.release("q", refs, NOW))
    rows = {row.id: (row.state, row.attempts, row.run_at) for row in executor.list("q", None, 0, 10)}
    assert {
        first.id: (State.PENDING, 0, NOW + 9),
        second.id: (State.PROCESSING, 1, NOW),
        third.id: (State.PENDING, 0, NOW),
    } == rows


def test_many_are_acked_and_cancelled_at_once(executor: Executor, claims: list[JobRow]) -> None:
    """By token, by bare id, and by id alone; of others' queues none (Q-2, Q-3)."""
    first, second, third = claims
    refs = [ClaimRef(third.id, None), ClaimRef(second.id, token(second) + 1), ClaimRef(first.id, token(first))]
    assert [] == executor.ack("other", refs, NOW)
    assert [first.id, third.id] == sorted(executor.ack("q", refs, NOW))
    assert [] == executor.cancel("other", [second.id])
    assert [second.id] == executor.cancel("q", [first.id, second.id, third.id])
    assert {} == states(executor)


def test_a_reference_without_a_token_names_no_claim_to_hold(executor: Executor, claims: list[JobRow]) -> None:
    """A bare id is for ``ack`` alone."""
    bare = ClaimRef(claims[0].id, None)
    assert executor.recall("q", bare) is None
    assert False is executor.conclude("q", bare)
    assert executor.recall("q", ClaimRef(claims[0].id, token(claims[0]))) is not None


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_nothing_is_empty(limit: int, executor: Executor, claims: list[JobRow]) -> None:
    """A limit of 0 or less asks for no rows (Q-6)."""
    assert 3 == len(claims)
    assert [] == executor.list("q", None, 0, limit)
