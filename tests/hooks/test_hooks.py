"""Hooks are told of jobs as they go by: what was committed, once, and nothing else."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

import alkstore
from alkstore import ClaimLostError, Hooks, Item, OutcomeUnknownError, ValidationError, telling
from alkstore.hooks import Claimed, Died, Enqueued, Enqueueing, HookFailed, Lost, Retried, Succeeded, Swept
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.testing import inline
from tests.hooks.recording import Recording
from tests.integrations.places import Place

Open = Callable[..., Store]


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def hook() -> Recording:
    return Recording()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(open_store: Open, hook: Recording, clock: Clock) -> Store:
    """A store with the hook and the clock."""
    return open_store(hooks=[hook], clock=clock)


def claim(store: Store) -> alkstore.JobHandle:
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    return handle


# --- on the way in and out --------------------------------------------------------------------------------------------


def test_what_is_enqueued_is_told_once_a_call(store: Store, hook: Recording) -> None:
    """With the ids in the order of the call; of a call that stores nothing, nothing."""
    queue = store.queue("q")
    one = queue.enqueue("a")
    many = queue.enqueue_many(["b", Item("c", delay=5)])
    assert [] == queue.enqueue_many([])
    assert [
        Enqueueing(queue="q", many=False),
        Enqueued(queue="q", job_ids=(one,)),
        Enqueueing(queue="q", many=True),
        Enqueued(queue="q", job_ids=tuple(many)),
    ] == hook.told


def test_jobs_in_many_chunks_are_told_in_one_record(store: Store, hook: Recording) -> None:
    ids = store.queue("q").enqueue_many(range(2_500))
    assert [Enqueued(queue="q", job_ids=tuple(ids))] == hook.of(Enqueued)


def test_what_is_refused_is_not_told(store: Store, hook: Recording) -> None:
    for wrong in ({"headers": 7}, {"priority": "high"}):
        with pytest.raises(ValidationError):
            store.queue("q").enqueue("a", **cast(Any, wrong))
    with store.transaction(), pytest.raises(alkstore.TransactionError):
        store.queue("q").enqueue("a")
    assert [] == hook.told


def test_a_claim_is_told_with_how_long_the_job_was_due(store: Store, hook: Recording, clock: Clock) -> None:
    first, second = store.queue("q").enqueue("a"), store.queue("q").enqueue("b", delay=3)
    clock.move(5)
    store.queue("q").claim_batch("w", 5)
    waited = [timedelta(seconds=5), timedelta(seconds=2)]
    assert [
        Claimed(queue="q", job_id=job_id, attempt=1, worker_id="w", waited=each)
        for job_id, each in zip((first, second), waited, strict=True)
    ] == hook.of(Claimed)


def test_a_consumers_claims_are_told(open_store: Open, hook: Recording) -> None:
    store = open_store(hooks=[hook])
    job_id = store.queue("q").enqueue("a")
    with store.queue("q").consume("w") as consumer:
        next(consumer)
    assert [job_id] == [event.job_id for event in hook.of(Claimed)]


# --- how claims end ---------------------------------------------------------------------------------------------------


def test_each_end_of_a_claim_is_told_by_its_name(store: Store, hook: Recording) -> None:
    """A release isn't told: it is as if nothing had been."""
    queue = store.queue("q")
    ids = queue.enqueue_many(list("abcde"), max_attempts=2)
    handles = queue.claim_batch("w", 5)
    assert handles[0].ack()
    assert handles[1].retry(ValueError("no"), delay=7)
    assert handles[2].fail("broken")
    assert handles[3].fail()
    assert handles[4].release()
    known: Any = {"queue": "q", "attempt": 1, "worker_id": "w", "duration": None}
    assert [
        Succeeded(job_id=ids[0], **known),
        Retried(job_id=ids[1], **known, error="ValueError: no", delay=timedelta(seconds=7)),
        Died(job_id=ids[2], **known, error="broken"),
        Died(job_id=ids[3], **known, error="failed"),
    ] == hook.of(Succeeded) + hook.of(Retried) + hook.of(Died)
    assert [] == hook.of(Lost)


@pytest.mark.parametrize(("error", "told"), [("last words", "last words"), ("", ""), (None, "max attempts exceeded")])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_retry_with_the_budget_spent_is_a_death(
    store: Store, hook: Recording, rebuilt: bool, error: str | None, told: str
) -> None:
    """As the row has it, also by a handle that was rebuilt from its token (Q-8)."""
    job_id = store.queue("q").enqueue("a", max_attempts=1)
    handle = claim(store)
    if rebuilt:
        handle = store.queue("q").handle(handle.id, handle.token)
    assert handle.retry(error, delay=3)
    assert [(job_id, 1, "w", told)] == [
        (event.job_id, event.attempt, event.worker_id, event.error) for event in hook.of(Died)
    ]
    assert [] == hook.of(Retried)
    job = store.get_job(job_id)
    assert job is not None
    assert told == job.last_error


def test_the_delay_that_was_drawn_is_told(store: Store, hook: Recording, clock: Clock) -> None:
    job_id = store.queue("q").enqueue("a")
    claim(store).retry("no")
    job = store.get_job(job_id)
    assert job is not None
    assert [job.run_at - clock.now] == [event.delay for event in hook.of(Retried)]


def test_a_block_is_told_with_its_duration(store: Store, hook: Recording) -> None:
    queue = store.queue("q")
    queue.enqueue_many(list("abc"), max_attempts=1)
    with claim(store):
        pass
    with claim(store).transaction():
        assert 1 == len(hook.of(Succeeded)), "nothing before the commit"
    with pytest.raises(ZeroDivisionError), claim(store):
        raise ZeroDivisionError
    durations = [event.duration for event in (*hook.of(Succeeded), *hook.of(Died))]
    assert 3 == len([each for each in durations if each is not None and each > timedelta(0)])


def test_acks_in_a_batch_are_told_one_by_one(store: Store, hook: Recording, clock: Clock) -> None:
    """What a bare id acks, with no more than is known of it; a handle that is refused has lost its claim."""
    queue = store.queue("q", visibility_timeout=10)
    first, second, third = queue.enqueue_many(list("abc"))
    handles = queue.claim_batch("w", 3)
    assert 1 == queue.ack_batch([handles[0], handles[0]])
    assert 1 == queue.ack_batch([second])
    clock.move(11)
    assert 0 == queue.ack_batch([handles[0], handles[1], handles[2], first])
    assert [(first, 1, "w"), (second, None, None)] == [
        (event.job_id, event.attempt, event.worker_id) for event in hook.of(Succeeded)
    ]
    assert [second, third] == sorted(event.job_id for event in hook.of(Lost))


@pytest.mark.parametrize("operation", ["ack", "retry", "fail", "release", "heartbeat"])
def test_a_refusal_tells_once_that_the_claim_is_lost(
    store: Store, hook: Recording, clock: Clock, operation: str
) -> None:
    job_id = store.queue("q", visibility_timeout=10).enqueue("a")
    handle = claim(store)
    clock.move(11)
    assert not getattr(handle, operation)()
    assert not handle.ack()
    assert [Lost(queue="q", job_id=job_id, attempt=1, worker_id="w", duration=None)] == hook.of(Lost)


def test_a_second_ack_has_lost_nothing(store: Store, hook: Recording) -> None:
    store.queue("q").enqueue("a")
    handle = claim(store)
    assert handle.ack()
    assert not handle.ack()
    assert [] == hook.of(Lost)
    assert 1 == len(hook.of(Succeeded))


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_transaction_of_a_job_that_is_lost_tells_so(store: Store, hook: Recording, clock: Clock, when: str) -> None:
    """And not that it succeeded."""
    queue = store.queue("q", visibility_timeout=10)
    queue.enqueue("a")
    handle = claim(store)
    if when == "before":
        clock.move(11)
    with pytest.raises(ClaimLostError), handle.transaction() as tx:
        tx.queue("q").cancel(handle.id)
    assert ([], 1) == (hook.of(Succeeded), len(hook.of(Lost)))


def test_a_sweep_is_told_with_what_it_moved(store: Store, hook: Recording, clock: Clock) -> None:
    queue = store.queue("q")
    queue.enqueue_many(range(3), expires=1)
    assert 0 == queue.sweep_expired()
    clock.move(2)
    assert 3 == queue.sweep_expired()
    assert [Swept(queue="q", moved=3)] == hook.of(Swept)


# --- transactions -----------------------------------------------------------------------------------------------------


class Looking(Recording):
    """Looks at the store whenever something was enqueued."""

    store: Store

    def enqueued(self, event: Enqueued) -> None:
        self.keep((event, self.store.queue("q").stats().ready))


def test_nothing_is_told_before_the_commit(open_store: Open) -> None:
    """Then in the order in which it was done, of what no savepoint undid; and a hook may use the store again."""
    hook = Looking()
    store = hook.store = open_store(hooks=[hook])
    with store.transaction() as tx:
        queue = tx.queue("q")
        job_id = queue.enqueue("a")
        with pytest.raises(ZeroDivisionError), tx.transaction() as inner:
            inner.queue("q").enqueue("undone")
            raise ZeroDivisionError
        handle = queue.claim_one("w")
        assert handle is not None
        assert handle.retry("no", delay=0)
        assert {"Enqueueing"} == set(hook.kinds())
    assert (Enqueued(queue="q", job_ids=(job_id,)), 1) == hook.told[2]
    assert ["Claimed", "Retried"] == hook.kinds()[3:]


def test_nothing_is_told_of_what_is_rolled_back(store: Store, hook: Recording) -> None:
    store.queue("q").enqueue("a")
    handle = claim(store)
    before = len(hook.told)
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.queue("q").enqueue_many(list("bc"))
        tx.queue("q").claim_batch("w", 5)
        assert tx.bind(handle).ack()
        raise ZeroDivisionError
    assert {"Enqueueing"} == set(hook.kinds()[before:])
    assert handle.ack()
    assert 1 == len(hook.of(Succeeded))


def test_nothing_is_told_where_the_outcome_is_not_known(
    store: Store, hook: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it came through, here: what is told is certain."""
    with pytest.raises(OutcomeUnknownError), store.transaction() as tx:
        tx.queue("q").enqueue("a")
        inner = tx.any_connection()
        commit = cast(Any, inner).commit

        def cut_off(_: object) -> None:
            commit()
            raise OutcomeUnknownError("cut off")

        monkeypatch.setattr(type(inner), "commit", cut_off)
    assert [] == hook.of(Enqueued)
    assert 1 == store.queue("q").stats().ready


def test_a_task_that_fails_inline_at_the_commit_keeps_nothing_from_being_told(
    place: Place, store: Store, hook: Recording
) -> None:
    """Both wait for the same commit, and its error comes out of that all the same: a store's own, or a session's."""
    tasks = Tasks(store)

    @tasks.task(max_attempts=1)
    def break_down() -> None:
        raise ValueError("broken")

    engine = sqlalchemy.create_engine(place.sqlalchemy_url, connect_args=place.connect_args)
    with inline(tasks):
        with pytest.raises(ValueError, match="broken"), store.transaction() as tx:
            break_down.enqueue(tx=tx)
            tx.queue("q").enqueue("own")
        assert ["default", "q"] == [event.queue for event in hook.of(Enqueued)]
        try:
            with pytest.raises(ValueError, match="broken"), Session(engine) as session:
                break_down.enqueue(tx=store.join(session))
                store.join(session).queue("q").enqueue("the session's")
                session.commit()
        finally:
            engine.dispose()
    assert ["default", "q"] * 2 == [event.queue for event in hook.of(Enqueued)]
    assert 2 == len(hook.of(Died))


def test_over_a_session_of_sqlalchemy_they_are_told_at_its_commit(place: Place, store: Store, hook: Recording) -> None:
    engine = sqlalchemy.create_engine(place.sqlalchemy_url, connect_args=place.connect_args)
    try:
        with Session(engine) as session:
            store.join(session).queue("q").enqueue("undone")
            session.rollback()
            job_id = store.join(session).queue("q").enqueue("a")
            assert [] == hook.of(Enqueued)
            session.commit()
            assert [(job_id,)] == [event.job_ids for event in hook.of(Enqueued)]
    finally:
        engine.dispose()


def test_over_a_drivers_connection_only_what_commits_itself_is_told(
    place: Place, store: Store, hook: Recording
) -> None:
    """Nobody tells of another commit (Z-14)."""
    connection: Any
    if place.engine == "sqlite":
        connection = sqlite3.connect(place.path, isolation_level=None)
    else:
        connection = psycopg.connect(place.url, autocommit=True)
    with closing(connection):
        queue = store.join(connection).queue("q")
        job_id = queue.enqueue("a")
        assert [(job_id,)] == [event.job_ids for event in hook.of(Enqueued)]
        connection.execute("BEGIN")
        queue.enqueue("b")
        connection.execute("COMMIT")
    assert 1 == len(hook.of(Enqueued))
    assert 2 == len(store.queue("q").jobs())


# --- headers ----------------------------------------------------------------------------------------------------------


def test_hooks_add_headers_and_the_applications_own_win(open_store: Open) -> None:
    """Then those of the hook that comes first; of a bulk, each job gets them."""
    store = open_store(hooks=[Recording({"a": "1", "b": "1"}), Recording({"b": "2", "c": "2"}), Recording(None)])
    queue = store.queue("q")
    queue.enqueue("x", headers={"a": "own"})
    queue.enqueue_many(["y", Item("z", headers={"c": "own"})])
    assert [
        {"a": "own", "b": "1", "c": "2"},
        {"a": "1", "b": "1", "c": "2"},
        {"a": "1", "b": "1", "c": "own"},
    ] == [dict(job.headers) for job in queue.jobs()]


@pytest.mark.parametrize(
    ("own", "given", "kept"),
    [
        ({f"k{n}": "" for n in range(31)}, {"a": "", "b": ""}, {"a"}),
        ({}, {"a": "x" * 8192, "b": "x" * 8191, "c": ""}, {"b"}),
        ({"own": "x" * 8189}, {"a": "é", "b": ""}, set[str]()),
        ({}, {"a": "\ud800", "\udfff": "b", "c": "\0"}, {"c"}),
        ({}, {"a": 7, 8: "b", "c": "d"}, {"c"}),
        ({}, ["no mapping"], set[str]()),
    ],
    ids=["entries", "bytes", "one-more", "surrogates", "types", "mapping"],
)
def test_what_would_go_over_the_limits_is_left_out(
    open_store: Open, own: dict[str, str], given: Any, kept: set[str]
) -> None:
    """And never an error (O-2)."""
    queue = open_store(hooks=[Recording(given)]).queue("q")
    queue.enqueue("x", headers=own)
    (job,) = queue.jobs()
    assert kept == set(job.headers) - set(own)
    assert own == {key: value for key, value in job.headers.items() if key in own}


# --- what hooks can't do ----------------------------------------------------------------------------------------------


class Raising(Hooks):
    """Raises in whatever it is told."""

    def enqueueing(self, event: object) -> dict[str, str]:
        raise ZeroDivisionError

    def enqueued(self, event: object) -> None:
        raise ZeroDivisionError

    claimed = succeeded = retried = died = lost = swept = hook_failed = enqueued


def test_a_hook_that_raises_is_logged_and_changes_nothing(
    open_store: Open, hook: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """The hooks after it are told all the same."""
    store = open_store(hooks=[Raising(), hook])
    with store.transaction() as tx:
        tx.queue("q").enqueue_many(list("abc"))
    handles = store.queue("q").claim_batch("w", 3)
    assert handles[0].ack()
    assert handles[1].retry()
    assert handles[2].fail()
    told = [kind for kind in hook.kinds() if kind != "HookFailed"]
    assert ["Enqueueing", "Enqueued", *["Claimed"] * 3, "Succeeded", "Retried", "Died"] == told
    assert ["enqueueing", "enqueued", *["claimed"] * 3, "succeeded", "retried", "died"] == [
        event.method for event in hook.of(HookFailed)
    ]
    assert {("Raising", "ZeroDivisionError")} == {(event.hook, event.error) for event in hook.of(HookFailed)}
    failures = [record for record in caplog.records if record.message.startswith("a hook failed: Raising.")]
    assert 8 == len([record for record in failures if record.message.endswith(".hook_failed")]), (
        "once each, and no more"
    )
    assert (16, {("alkstore", logging.WARNING)}) == (
        len(failures),
        {(record.name, record.levelno) for record in failures},
    )
    assert all(record.exc_info for record in failures)


def test_ctrl_c_goes_up_through_a_hook(open_store: Open, hook: Recording) -> None:
    """It comes from a signal's handler, on top of whatever runs; the job is committed all the same."""

    class Interrupted(Hooks):
        def enqueued(self, event: Enqueued) -> None:
            raise KeyboardInterrupt

    store = open_store(hooks=[Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        store.queue("q").enqueue("a")
    assert 1 == store.queue("q").stats().ready


@pytest.mark.parametrize("wrong", [7, "hooks", [Hooks], [object()], [None], {"a": Hooks()}, Hooks()], ids=range(7))
def test_what_isnt_hooks_is_refused_by_name(place: Place, wrong: Any) -> None:
    """Before anything is opened."""
    for attempt in (
        lambda: alkstore.open(place.url, hooks=wrong, **place.options),
        lambda: alkstore.open_from({"url": place.url, "hooks": wrong, **place.options}),
    ):
        with pytest.raises(ValidationError, match=r"^hooks must"):
            attempt()
    assert place.engine != "sqlite" or not place.path.exists()


def test_open_from_takes_them(place: Place, hook: Recording) -> None:
    with alkstore.open_from({"url": place.url, "hooks": [hook], **place.options}) as store:
        store.queue("q").enqueue("a")
    assert ["Enqueueing", "Enqueued"] == hook.kinds()


def test_without_hooks_nothing_of_theirs_is_run(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is made, and nothing is looked at but that there are none."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("called without hooks")

    store = open_store(hooks=[])
    assert store.hooks is None
    for name in [name for name, value in vars(telling.Telling).items() if callable(value)]:
        monkeypatch.setattr(telling.Telling, name, never)
    queue = store.queue("q")
    queue.enqueue_many(list("abc"))
    handles = queue.claim_batch("w", 3)
    assert [True, True, True, False] == [handles[0].ack(), handles[1].retry(), handles[2].fail(), handles[0].ack()]
    with store.transaction() as tx:
        tx.queue("q").enqueue("d")
    assert 0 == queue.sweep_expired()


def test_of_what_no_hook_asks_for_no_record_is_made(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    class Acks(Hooks):
        told = 0

        def succeeded(self, event: Succeeded) -> None:
            self.told += 1

    def never(**_: object) -> None:
        raise AssertionError("made for nobody")

    for name in ("Claimed", "Enqueued", "Retried", "Died", "Lost"):
        monkeypatch.setattr(telling, name, never)
    hook = Acks()
    queue = open_store(hooks=[hook]).queue("q")
    queue.enqueue_many(list("abc"))
    handles = queue.claim_batch("w", 3)
    assert handles[0].ack()
    assert handles[1].retry()
    assert handles[2].fail()
    assert 1 == hook.told
