"""`drain` does whatever is due, in this thread, and as a worker would."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

import pytest

from alkstore import (
    Backoff,
    Fail,
    PayloadError,
    Retry,
    RunningJob,
    State,
    StoreClosedError,
    TransactionError,
    Unhandled,
    ValidationError,
    Worker,
)
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.testing import Drained, FrozenClock, drain

WAIT = 60
MARK: ContextVar[str] = ContextVar("mark", default="elsewhere")


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def store(open_store: Callable[..., Store], clock: FrozenClock) -> Store:
    return open_store(clock=clock)


def test_handlers_run_in_this_thread_and_its_context(store: Store) -> None:
    seen: list[object] = []
    store.queue("q").enqueue_many(range(3))
    MARK.set("here")
    drained = drain(store, {"q": lambda job: seen.append((threading.get_ident(), MARK.get(), job.payload))})
    assert Drained(succeeded=3) == drained
    assert [(threading.get_ident(), "here", n) for n in range(3)] == seen
    assert [] == store.queue("q").jobs()


def test_what_is_enqueued_meanwhile_is_done_too_and_what_is_due_later_stays(store: Store, clock: FrozenClock) -> None:
    tasks = Tasks(store)
    seen: list[int] = []

    @tasks.task
    def countdown(n: int) -> None:
        seen.append(n)
        if n > 2:
            countdown.enqueue(n - 1)
        elif n:
            countdown.options(delay=60).enqueue(n - 1)

    countdown.enqueue(3)
    assert 2 == drain(tasks).succeeded
    assert [3, 2] == seen
    clock.tick(59)
    assert 0 == drain(tasks).succeeded
    clock.tick(1)
    drain(tasks)
    assert [3, 2, 1] == seen
    assert 1 == store.queue("default").stats().scheduled


def outcome(store: Store, how: str) -> tuple[Any, ...]:
    """Everything that is known of the job of the queue `q` afterwards, but for the draw of its delay."""
    found = [
        (job.state, job.attempts, job.last_error, job.run_at == job.created_at, job.worker_id)
        for job in store.queue("q").jobs()
    ]
    store.queue("q").purge("pending")
    store.queue("q").purge("dead")
    return how, found


def handle(job: RunningJob) -> object:
    match job.payload:
        case "retry":
            raise Retry(50, "not yet")
        case "fail":
            raise Fail("never")
        case "unhandled":
            raise Unhandled("who?")
        case "exit":
            raise SystemExit(3)
        case "error":
            raise ValueError("a\0b")
        case "settled":
            job.handle.fail("by hand")
        case "settled and raised":
            job.handle.release(5)
            raise ValueError("late")
        case "no result":
            return object()
        case "transaction":
            with job.transaction() as tx:
                tx.queue("effects").enqueue(1)
        case _:
            return {"n": 1}
    return None


@pytest.mark.parametrize("budget", [1, 5])
def test_what_becomes_of_a_job_is_what_a_worker_makes_of_it(store: Store, budget: int) -> None:
    """The same state, attempts, text: whatever the handler does."""
    ways = ["retry", "fail", "unhandled", "exit", "error", "settled", "settled and raised", "no result", "transaction"]
    for how in [*ways, "ok"]:
        results: list[object] = []
        for do in (
            lambda: Worker(store, {"q": handle}).run(until_idle=True),
            lambda: drain(store, {"q": handle}, raise_errors=False),
        ):
            job_id = store.queue("q", backoff=Backoff(base=100)).enqueue(how, max_attempts=budget, keep_result=60)
            summary = do()
            counts = (summary.succeeded, summary.retried, summary.died, summary.released, summary.lost)
            kept = store.result(job_id)
            results.append(
                (outcome(store, how), counts, kept and (kept.outcome, kept.value, kept.attempts, kept.error))
            )
        assert results[0] == results[1]


def test_the_first_error_is_raised_when_all_is_done(store: Store) -> None:
    """As it was raised, with a note of the others; what it did to its job is done."""
    first, second = ValueError("one"), ValueError("two")
    store.queue("q").enqueue_many([0, 1, 2, 3])
    seen: list[object] = []

    def work(job: RunningJob) -> None:
        seen.append(job.payload)
        if job.payload in {1, 2}:
            raise (first, second)[job.payload - 1]

    with pytest.raises(ValueError, match="one") as raised:
        drain(store, {"q": work})
    assert raised.value is first
    assert "work" in [entry.name for entry in raised.traceback]
    assert ["and there was another error meanwhile: ValueError: two"] == first.__notes__
    assert [0, 1, 2, 3] == seen
    assert {"ValueError: one", "ValueError: two"} == {job.last_error for job in store.queue("q").jobs()}
    store.queue("q").purge("pending")
    store.queue("q").enqueue_many([1, 2])
    assert (first, second) == drain(store, {"q": work}, raise_errors=False).errors


def test_what_is_raised_on_purpose_is_no_error_but_an_unknown_task_is(store: Store) -> None:
    tasks = Tasks(store)

    @tasks.task
    def work(how: str) -> None:
        raise Retry(5) if how == "retry" else Fail("never")

    work.enqueue("retry")
    work.enqueue("fail")
    assert (1, 1, ()) == ((done := drain(tasks)).retried, done.died, done.errors)
    store.queue("default").enqueue({"task": "wrok", "args": {}})
    with pytest.raises(Unhandled, match="wrok"):
        drain(tasks)


def test_a_result_that_cannot_be_kept_is_an_error(store: Store) -> None:
    store.queue("q").enqueue(1, keep_result=60)
    with pytest.raises(PayloadError, match="result is of type object"):
        drain(store, {"q": lambda _: object()})


def test_a_retry_is_due_when_its_time_has_come(store: Store, clock: FrozenClock) -> None:
    tasks = Tasks(store)
    attempts: list[int] = []

    @tasks.task(max_attempts=2, pass_job=True)
    def work(job: RunningJob) -> None:
        attempts.append(job.attempt)
        raise Retry(60)

    work.enqueue()
    drain(tasks)
    drain(tasks)
    assert [1] == attempts
    clock.tick(60)
    drain(tasks)
    assert [1, 2] == attempts
    assert [State.DEAD] == [job.state for job in store.queue("default").jobs()]


def test_an_interrupt_ends_it_at_once(store: Store) -> None:
    """What was not begun stays as it was, and the thread that worked is gone."""
    store.queue("q").enqueue_many(range(50))
    seen: list[object] = []

    def work(job: RunningJob) -> None:
        seen.append(job.payload)
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        drain(store, {"q": work})
    assert [0] == seen
    assert 50 == len(store.queue("q").jobs())
    assert 0 == store.queue("q").stats().processing
    assert not [each for each in threading.enumerate() if each not in before and each.name == "alkstore-drain"]


def test_within_a_transaction_it_is_refused(store: Store) -> None:
    store.queue("q").enqueue(1)
    with store.transaction(), pytest.raises(TransactionError):
        drain(store, {"q": lambda _: None})
    assert 1 == store.queue("q").stats().ready


def test_what_can_not_be_drained_is_refused(store: Store, open_store: Callable[..., Store]) -> None:
    tasks = Tasks(store)
    ways: list[tuple[Any, ...]] = [(store,), (store, 7), (7,), (tasks, {}), (tasks,)]
    for wrong in ways:
        with pytest.raises(ValidationError):
            cast(Any, drain)(*wrong)
    closed = open_store()
    closed.close()
    with pytest.raises(StoreClosedError):
        drain(closed, {"q": lambda _: None})


def test_a_timeout_of_a_task_counts(store: Store) -> None:
    tasks = Tasks(store)

    @tasks.task(timeout=0.05, max_attempts=1, pass_job=True)
    def work(job: RunningJob) -> None:
        over = threading.Event()
        while not job.lost:
            over.wait(0.01)

    work.enqueue()
    assert 1 == drain(tasks).died
    assert ["TimeoutError: the handler ran for more than 0.05 s"] == [
        job.last_error for job in store.queue("default").jobs()
    ]
