"""The engines' operations on several claims at once, which the front so far asks of one (see ``alkstore.engine``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from alkstore import QueueOptions
from alkstore.clock import SECOND
from alkstore.engine import Executor, Results
from alkstore.options import Stamps, resolve_enqueue
from alkstore.records import (
    BuryRef,
    ClaimRef,
    JobRow,
    KeptBatch,
    Moved,
    Outcome,
    ReleaseRef,
    ResultRef,
    RetryRef,
    State,
)
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
    sooner, own = Moved(NOW + 5, sooner=True), NOW + 60 * SECOND
    assert {first.id: sooner, third.id: sooner} == executor.extend("q", refs, 5, NOW)
    assert {first.id: Moved(own, sooner=False), second.id: Moved(own, sooner=False)} == executor.extend(
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


# --- results (Z-17) --------------------------------------------------------------------------------------------------


@pytest.fixture
def keepers(executor: Executor) -> list[JobRow]:
    """Three claimed jobs of the queue ``q``, of which the first and the last keep their results for a second."""
    job = resolve_enqueue(Stamps.of(QueueOptions()), "raw", b"", {})
    keeper = job._replace(keep_result=SECOND)
    executor.insert("q", [keeper, job, keeper], NOW)
    rows = executor.claim("q", "w", 3, "exhausted", 1, 1, NOW).rows
    assert [SECOND, None, SECOND] == [row.keep_result for row in rows]
    return rows


def test_the_plain_statements_refuse_what_keeps_its_result(executor: Executor, keepers: list[JobRow]) -> None:
    """Rather than lose it: of several, of one, and by the token alone."""
    refs = [ClaimRef(row.id, row.token) for row in keepers]
    assert [] == executor.ack("q", refs[:1], NOW)
    assert [] == executor.ack("q", [ClaimRef(keepers[0].id, None)], NOW)
    assert False is executor.conclude("q", refs[2])
    assert [keepers[1].id] == executor.ack("q", refs, NOW)
    assert {keepers[0].id, keepers[2].id} == set(states(executor))


def test_results_of_many_are_kept_each_with_its_own(executor: Executor, keepers: list[JobRow]) -> None:
    """Of the valid claims, each once, in one unit with those that keep nothing."""
    results = cast(Results, executor)
    refs = [ResultRef(row.id, row.token, str(number).encode()) for number, row in enumerate(keepers)]
    stale = ResultRef(keepers[2].id, token(keepers[0]), b"stale")
    batch = results.ack_keeping("q", [stale, *reversed(refs), refs[0]], "raw", NOW + 5)
    assert sorted(row.id for row in keepers) == sorted(batch.done)
    assert [keepers[0].id, keepers[2].id] == sorted(batch.kept)
    assert {} == states(executor)
    for number in (0, 2):
        row = results.result("q", keepers[number].id, NOW + 5)
        assert row is not None
        assert (Outcome.SUCCEEDED, "raw", str(number).encode(), "w") == (
            row.outcome, row.codec, row.payload, row.worker_id,
        )  # fmt: skip
        assert (NOW + 5, NOW + 5 + SECOND) == (row.finished_at, row.expires_at)
    assert results.result("q", keepers[1].id, NOW) is None
    assert KeptBatch([], []) == results.ack_keeping("q", refs, "raw", NOW + 5)
    assert KeptBatch([], []) == results.ack_keeping("q", [], "raw", NOW)


def test_a_bare_reference_concludes_nothing(executor: Executor, keepers: list[JobRow]) -> None:
    """And a stale one neither; the current one does, whatever its deadline (J-10)."""
    results, job = cast(Results, executor), keepers[0]
    for wrong in (
        ResultRef(job.id, None, b"x"),
        ResultRef(job.id, token(keepers[1]), b"x"),
        ResultRef(-1, 2**63, b"x"),
    ):
        assert KeptBatch([], []) == results.conclude_keeping("q", wrong, "raw", NOW)
    later = NOW + 10**12
    assert KeptBatch([job.id], [job.id]) == results.conclude_keeping(
        "q", ResultRef(job.id, job.token, b"x"), "raw", later
    )
    middle = keepers[1]
    assert KeptBatch([middle.id], []) == results.conclude_keeping(
        "q", ResultRef(middle.id, middle.token, b"x"), "raw", later
    )


def test_cancelling_by_the_plain_operation_leaves_a_tombstone_too(executor: Executor, keepers: list[JobRow]) -> None:
    """By the engine's own clock."""
    results = cast(Results, executor)
    assert sorted(row.id for row in keepers) == sorted(executor.cancel("q", [row.id for row in keepers]))
    found = [results.result(None, row.id, None) for row in keepers]
    assert [Outcome.CANCELLED, None, Outcome.CANCELLED] == [row and row.outcome for row in found]


def test_a_live_and_a_dead_job_say_how_it_stands(executor: Executor, keepers: list[JobRow]) -> None:
    """A live one that it isn't decided, and whether there will be a result; a dead one that it failed."""
    results, (first, second, _) = cast(Results, executor), keepers
    live = results.result("q", first.id, NOW)
    assert live is not None
    assert (None, SECOND, None, None) == (live.outcome, live.keep_result, live.finished_at, live.error)
    assert [second.id] == executor.bury("q", [BuryRef(second.id, token(second), "no")], NOW)
    dead = results.result(None, second.id, NOW)
    assert dead is not None
    assert (Outcome.FAILED, "no", NOW, None, None) == (
        dead.outcome, dead.error, dead.finished_at, dead.expires_at, dead.keep_result,
    )  # fmt: skip
    assert results.result("another", first.id, NOW) is None


def test_results_are_pruned_in_bounded_batches(executor: Executor, keepers: list[JobRow]) -> None:
    """Of one queue, and none before its time."""
    results = cast(Results, executor)
    results.ack_keeping("q", [ResultRef(row.id, row.token, b"x") for row in keepers], "raw", NOW)
    assert 0 == results.prune_results("q", 10, NOW + SECOND - 1)
    assert 0 == results.prune_results("another", 10, NOW + SECOND)
    assert ["q"] == executor.queues()
    assert [1, 1, 0] == [results.prune_results("q", 1, NOW + SECOND) for _ in range(3)]
    assert [] == executor.queues()
