"""A worker runs handlers, and what they do becomes of their jobs (J-2, J-4 to J-6, J-10)."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest

import alkstore
from alkstore import Backoff, Fail, Job, Retry, RunningJob, State, Unhandled, ValidationError, Worker
from alkstore.errors import (
    EngineBusyError,
    EngineUnavailableError,
    OutcomeUnknownError,
    StoreClosedError,
    TransactionError,
)
from alkstore.store import Store
from contract_tests.scale import rounds, scale
from tests.integrations.places import Place, payloads
from tests.support.waiting import wait_until
from tests.worker.conftest import options_of
from tests.worker.running import Running

WAIT = 60


def drain(store: Store, handler: Callable[[RunningJob], object], **options: Any) -> Any:
    """Run a worker on the queue `q` until it is idle, and return its summary."""
    return Worker(store, {"q": handler}, **options).run(until_idle=True)


# --- what becomes of a job --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 0.003])
def test_a_job_whose_handler_returns_is_acked(store: Store, window: float) -> None:
    queue = store.queue("q")
    ids = queue.enqueue_many(range(50), headers={"a": "b"})
    seen: list[tuple[int, object, int, str]] = []
    summary = drain(
        store, lambda job: seen.append((job.id, job.payload, job.attempt, job.headers["a"])), ack_window=window
    )
    assert 50 == summary.succeeded
    assert sorted(zip(ids, range(50), [1] * 50, ["b"] * 50, strict=True)) == sorted(seen)
    assert [] == queue.jobs()


def test_one_at_a_time_they_come_in_order(store: Store) -> None:
    """By priority, then as enqueued (Q-CLAIM-3)."""
    store.queue("q").enqueue_many(range(5))
    store.queue("q").enqueue("first", priority=1)
    seen: list[object] = []
    drain(store, lambda job: seen.append(job.payload), concurrency=1)
    assert ["first", 0, 1, 2, 3, 4] == seen


class Unprintable(Exception):
    """An exception that can be neither printed nor pickled."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("no pickle")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ValueError("nope"), "ValueError: nope"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Unprintable(), "Unprintable: (unprintable: SystemExit)"),
        (ValueError("a\0b\ud800"), "ValueError: a\ufffdb\ufffd"),
        (Retry(reason="not yet"), "not yet"),
    ],
    ids=["error", "exit", "interrupt", "unprintable", "unstorable", "retry"],
)
def test_a_handler_that_raises_has_failed_once_and_the_worker_lives(
    store: Store, raised: BaseException, error: str
) -> None:
    """Whatever it is; the job is tried again by its own curve (J-4)."""
    queue = store.queue("q", backoff=Backoff(base=100))
    queue.enqueue_many(["bad", "good"])

    def handle(job: RunningJob) -> None:
        if job.payload == "bad":
            raise raised

    summary = drain(store, handle, concurrency=1)
    assert (1, 1) == (summary.succeeded, summary.retried)
    (job,) = queue.jobs()
    assert (State.PENDING, 1, error) == (job.state, job.attempts, job.last_error)
    assert 40 <= (job.run_at - job.created_at).total_seconds() <= 110


def test_a_text_of_megabytes_is_cut(store: Store) -> None:
    store.queue("q").enqueue(1)

    def handle(job: RunningJob) -> None:
        raise ValueError("x" * 5_000_000)

    drain(store, handle)
    (job,) = store.queue("q").jobs()
    assert job.last_error is not None
    assert job.last_error.startswith("ValueError: xxx")
    assert len(job.last_error) <= 65_536


def test_a_handler_says_on_purpose_what_becomes_of_its_job(store: Store) -> None:
    queue = store.queue("q", max_attempts=2)
    queue.enqueue_many(["later", "dead", "twice"])

    def handle(job: RunningJob) -> None:
        match job.payload:
            case "later":
                raise Retry(3_000, "not yet")
            case "dead":
                raise Fail("never")
            case _:
                raise Retry(0, f"attempt {job.attempt}")

    summary = drain(store, handle)
    assert (0, 2, 2) == (summary.succeeded, summary.retried, summary.died)
    jobs = {job.payload: job for job in queue.jobs()}
    assert (State.PENDING, "not yet", 1) == (jobs["later"].state, jobs["later"].last_error, jobs["later"].attempts)
    assert (State.DEAD, "never") == (jobs["dead"].state, jobs["dead"].last_error)
    assert (State.DEAD, "attempt 2") == (jobs["twice"].state, jobs["twice"].last_error)


def test_a_retry_with_a_delay_that_is_none_is_a_failed_attempt_that_says_so(store: Store) -> None:
    store.queue("q").enqueue(1)

    def handle(job: RunningJob) -> None:
        raise Retry(cast(Any, "soon"))

    drain(store, handle)
    assert "delay must be" in str(store.queue("q").jobs()[0].last_error)


class NotYet(Retry):
    """Lacks what its base would have set."""

    def __init__(self, what: str) -> None:
        self.what = what


class Never(Fail):
    """The same."""

    def __init__(self, what: str) -> None:
        self.what = what


@pytest.mark.parametrize("error", [NotYet("a"), Never("b")])
def test_an_exception_that_lacks_what_it_should_have_is_a_failed_attempt_that_says_so(
    store: Store, error: BaseException
) -> None:
    """And not the worker's end, and the next one's that is given the job."""
    store.queue("q").enqueue_many(["bad", "good"])

    def handle(job: RunningJob) -> None:
        if job.payload == "bad":
            raise error

    summary = drain(store, handle)
    assert (1, 1) == (summary.succeeded, summary.retried)
    assert "has no attribute 'reason'" in str(store.queue("q").jobs()[0].last_error)


class OddlyTimed:
    """A handler that says strange things of how long it may take."""

    def __call__(self, job: RunningJob) -> None:
        """Do nothing."""

    def timeout_of(self, job: RunningJob) -> Any:
        """Return what the payload says, or raise."""
        match job.payload:
            case "raise":
                raise LookupError("no such timeout")
            case other:
                return other


def test_a_timeout_of_a_handlers_own_that_is_none_is_a_failed_attempt_that_says_so(store: Store) -> None:
    """And not the worker's end."""
    queue = store.queue("q")
    queue.enqueue_many(["raise", "soon", -1, 0, 60, None])
    summary = drain(store, OddlyTimed())
    assert (2, 4) == (summary.succeeded, summary.retried)
    errors = [str(job.last_error) for job in queue.jobs()]
    assert "LookupError: no such timeout" == errors[0]
    assert all(error.startswith("ValidationError: timeout must") for error in errors[1:])


def released_after(store: Store, known: datetime) -> Job | None:
    """Return the job of the queue `q` that was released for longer than until then."""
    return next((each for each in store.queue("q").jobs() if each.run_at > known and not each.attempts), None)


def test_a_job_that_no_handler_knows_is_released_with_a_growing_delay(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Its attempt is given back (J-6), and the log says which job, and why."""
    queue = store.queue("q")
    job_id = queue.enqueue("what")

    def handle(job: RunningJob) -> None:
        raise Unhandled("no task 'what'")

    worker = Worker(store, {"q": handle})
    delays: list[float] = []
    job = queue.jobs()[0]
    with caplog.at_level(logging.WARNING, logger="alkstore.worker"), Running(worker):
        for _ in range(3):
            known = job.run_at
            job = wait_until(partial(released_after, store, known), WAIT, "the release")
            assert job is not None
            delays.append((job.run_at - known).total_seconds())
    assert (State.PENDING, 0) == (job.state, job.attempts)
    assert delays[0] < delays[1] < delays[2]
    assert f"job {job_id} of 'q'" in caplog.text
    assert "no task 'what'" in caplog.text


def test_what_the_handler_has_settled_itself_is_left_alone(store: Store) -> None:
    """By a transaction of the job, whose effects and ack are one commit, or by the handle."""
    queue = store.queue("q")
    queue.enqueue_many(["transaction", "fail", "bound"])

    def handle(job: RunningJob) -> None:
        match job.payload:
            case "transaction":
                with job.transaction() as tx:
                    tx.queue("effects").enqueue(job.payload)
            case "fail":
                job.handle.fail("by hand")
            case _:
                with store.transaction() as tx:
                    tx.queue("effects").enqueue(job.payload)
                    assert tx.bind(job.handle).ack()

    summary = drain(store, handle)
    assert (3, 0) == (summary.succeeded, summary.lost)
    assert ["by hand"] == [job.last_error for job in queue.jobs()]
    assert ["bound", "transaction"] == sorted(job.payload for job in store.queue("effects").jobs())


def test_a_payload_that_cannot_be_decoded_is_a_failed_attempt(store: Store) -> None:
    """Q-CLAIM-7: it breaks no batch."""
    queue = store.queue("q")
    store.queue("q", codec="raw").enqueue(b"{")
    queue.enqueue("good")
    seen: list[object] = []

    def handle(job: RunningJob) -> None:
        if isinstance(job.payload, bytes):
            raise TypeError("bytes")
        seen.append(job.payload)

    drain(store, handle)
    assert ["good"] == seen
    assert "TypeError: bytes" == queue.jobs()[0].last_error


# --- claims -----------------------------------------------------------------------------------------------------------


def test_no_more_is_claimed_than_can_start_soon(store: Store) -> None:
    """Of jobs that take their time, only those that run are claimed: the rest is for other workers."""
    queue = store.queue("q")
    queue.enqueue_many(range(100))
    release = threading.Event()
    running = threading.Semaphore(0)

    def handle(job: RunningJob) -> None:
        running.release()
        assert release.wait(WAIT)

    with Running(Worker(store, {"q": handle}, concurrency=3)):
        for _ in range(3):
            assert running.acquire(timeout=WAIT)
        assert (97, 3) == (queue.stats().ready, queue.stats().processing)
        release.set()


def test_a_claim_is_extended_while_its_handler_works(store: Store) -> None:
    """A busy loop in pure Python for several visibility timeouts, and another worker that waits for the job: it starts once."""
    factor = max(scale(), 0.3)
    store.queue("q", visibility_timeout=2 * factor).enqueue(1)
    starts: list[int] = []

    def handle(job: RunningJob) -> None:
        starts.append(job.attempt)
        until = time.monotonic() + 7 * factor
        while time.monotonic() < until:
            pass
        assert not job.lost

    with Running(Worker(store, {"q": handle})), Running(Worker(store, {"q": handle}, poll_interval=0.1)):
        wait_until(lambda: not store.queue("q").jobs(), WAIT, "the ack")
    assert [1] == starts


def test_a_claim_that_the_worker_makes_shorter_than_its_handler_did_is_rung(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4: who sleeps until it lapses is to look again; what only goes on as usual is rung for nobody."""
    store.queue("q", visibility_timeout=1).enqueue(1)
    ring, rung, over = store.wakes.ring, list[dict[str, int]](), threading.Event()

    def note(rings: Mapping[str, int], *, notified: bool = False) -> None:
        rung.append(dict(rings))
        ring(rings, notified=notified)

    def handle(job: RunningJob) -> None:
        before = job.deadline
        wait_until(lambda: job.deadline > before, WAIT, "the first heartbeat")
        assert {"q": 0} not in rung
        assert job.heartbeat(3_000)
        assert over.wait(WAIT)

    monkeypatch.setattr(store.wakes, "ring", note)
    with Running(Worker(store, {"q": handle})):
        wait_until(lambda: {"q": 0} in rung, WAIT, "the ring")
        over.set()
        wait_until(lambda: not store.queue("q").jobs(), WAIT, "the ack")


@pytest.mark.parametrize("how", ["cancelled", "lapsed"])
def test_a_lost_claim_is_told_to_the_handler_and_ends_without_an_ack(
    store: Store, open_store: Callable[..., Store], how: str
) -> None:
    queue = store.queue("q", visibility_timeout=1)
    job_id = queue.enqueue(1)
    begun, told = threading.Event(), threading.Event()

    def handle(job: RunningJob) -> None:
        begun.set()
        wait_until(lambda: job.lost, WAIT, "the loss")
        told.set()

    running = Running(Worker(store, {"q": handle}))
    with running:
        assert begun.wait(WAIT)
        if how == "cancelled":
            assert queue.cancel(job_id)
        else:
            # Another one's claim, as after a pause of this process: by a clock that is ahead.
            ahead = open_store(clock=lambda: datetime.now(UTC) + timedelta(seconds=3_000))
            assert ahead.queue("q").claim_one("thief") is not None
        assert told.wait(WAIT)
    assert 1 == running.summary.lost
    assert 0 == running.summary.succeeded


def test_a_handler_that_runs_for_too_long_is_marked_lost_and_its_job_retried(store: Store) -> None:
    queue = store.queue("q")
    queue.enqueue(1, max_attempts=1)
    queue.enqueue(2)
    worker = Worker(store, concurrency=1)

    @worker.handler("q", timeout=0.3)
    def handle(job: RunningJob) -> None:
        if job.payload == 1:
            wait_until(lambda: job.lost, WAIT, "the timeout")

    summary = worker.run(until_idle=True)
    assert (1, 1) == (summary.succeeded, summary.died)
    assert "TimeoutError: the handler ran for more than 0.3 s" == queue.jobs()[0].last_error


@pytest.mark.parametrize("window", [0, 0.003])
def test_a_handler_that_keeps_its_row_locked_past_its_timeout_holds_up_no_other_job(
    postgres_place: Place, window: float
) -> None:
    """Neither their acks nor their claims wait for its transaction (on SQLite, all that write do in any case)."""
    over, inside, starts = threading.Event(), threading.Event(), list[tuple[object, int]]()

    def handle(job: RunningJob) -> None:
        starts.append((job.payload, job.attempt))
        match job.payload:
            case "locked":
                with job.transaction():
                    inside.set()
                    assert over.wait(WAIT)
            case seconds:
                time.sleep(seconds)

    with alkstore.open(postgres_place.url, **options_of(postgres_place)) as store:
        worker = Worker(store, {"others": handle}, ack_window=window)
        worker.add("q", handle, timeout=0.2)
        store.queue("q").enqueue("locked")
        others = store.queue("others", visibility_timeout=1)
        with Running(worker) as running:
            assert inside.wait(WAIT)
            wait_until(lambda: any(job.lost for job in held(running)), WAIT, "the timeout")
            others.enqueue_many([0, 2.5])
            try:
                wait_until(lambda: not others.jobs(), 20, "the acks of the others")
            finally:
                over.set()
        assert [] == store.queue("q").jobs()
    assert {("locked", 1), (0, 1), (2.5, 1)} == set(starts)
    assert 3 == len(starts)


def held(worker: Worker) -> list[RunningJob]:
    """Return what the worker holds."""
    run = worker._run
    return [] if run is None else run._board.held()


def test_a_hook_that_takes_its_time_over_a_lost_claim_lets_no_other_lapse(open_store: Callable[..., Store]) -> None:
    """It is told on no thread that extends claims."""
    told, over = threading.Event(), threading.Event()

    class Slow(alkstore.Hooks):
        def lost(self, event: Any) -> None:
            told.set()
            assert over.wait(WAIT)

    store, starts = open_store(hooks=[Slow()]), list[object]()
    queue = store.queue("q", visibility_timeout=1)
    cancelled = queue.enqueue("cancelled")

    def handle(job: RunningJob) -> None:
        starts.append(job.payload)
        if job.payload == "cancelled":
            assert queue.cancel(job.id)
            assert told.wait(WAIT)
            queue.enqueue("long")
        else:
            before = job.deadline
            wait_until(lambda: job.deadline > before + timedelta(seconds=1.5), 20, "heartbeats")

    with Running(Worker(store, {"q": handle}, concurrency=2)):
        try:
            wait_until(lambda: len(starts) == 2 and not queue.jobs(), 30, "the ack")
        finally:
            over.set()
    assert ["cancelled", "long"] == starts
    assert store.get_job(cancelled) is None


def test_the_queues_are_swept(store: Store) -> None:
    """Q-5: what has expired is dead, although nobody calls for it."""
    queue = store.queue("q")
    queue.enqueue(1, expires=0.01, delay=5_000)
    with Running(Worker(store, {"q": lambda _: None}, sweep_interval=0.05)):
        job = wait_until(
            lambda: next((each for each in queue.jobs() if each.state is State.DEAD), None), WAIT, "the sweep"
        )
    assert job is not None
    assert "expired" == job.last_error


def test_it_is_woken_by_an_enqueue(store: Store, open_store: Callable[..., Store]) -> None:
    """In this store and in another: nobody polls."""
    seen: list[object] = []
    done = threading.Semaphore(0)

    def handle(job: RunningJob) -> None:
        seen.append(job.payload)
        done.release()

    other = open_store()
    with Running(Worker(store, {"q": handle}, poll_interval=3_600)):
        for turn, origin in enumerate([store, other, store]):
            origin.queue("q").enqueue(turn)
            assert done.acquire(timeout=WAIT)
    assert [0, 1, 2] == seen


def test_queues_share_the_places(store: Store) -> None:
    store.queue("q").enqueue_many(range(20))
    store.queue("r").enqueue_many(range(20))
    most, now, lock = 0, 0, threading.Lock()

    def handle(job: RunningJob) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1

    summary = Worker(store, {"q": handle, "r": handle}, concurrency=3).run(until_idle=True)
    assert 40 == summary.succeeded
    assert 1 < most <= 3


def test_what_handlers_enqueue_is_drained_too(store: Store) -> None:
    """Until nothing is left, in whichever queue."""
    store.queue("q").enqueue(6)

    def handle(job: RunningJob) -> None:
        if job.payload:
            store.queue("r" if job.queue == "q" else "q").enqueue(job.payload - 1)

    assert 7 == Worker(store, {"q": handle, "r": handle}).run(until_idle=True).succeeded
    assert [] == store.queues()


def test_a_worker_with_nothing_to_do_is_idle_at_once(store: Store) -> None:
    """What is due later isn't waited for."""
    store.queue("q").enqueue(1, delay=3_000)
    assert 0 == drain(store, lambda _: None).succeeded


def test_handlers_that_use_up_the_pool_neither_deadlock_nor_starve_their_claims(
    open_store: Callable[..., Store], place: Place
) -> None:
    """A pool of two, and four handlers, each in a transaction for longer than half a visibility timeout.

    On SQLite open transactions take turns, and the extension of a claim is a write that waits for its own: the timeout there
    has to cover all those that may stand before it.
    """
    store = open_store(pool_size=2)
    store.queue("q", visibility_timeout=1 if place.engine == "postgresql" else 10).enqueue_many(range(8))
    starts: list[object] = []

    def handle(job: RunningJob) -> None:
        starts.append(job.payload)
        with store.transaction() as tx:
            tx.queue("done").enqueue(job.payload)
            time.sleep(0.6)

    summary = drain(store, handle, concurrency=4)
    assert (8, 0) == (summary.succeeded, summary.lost)
    assert list(range(8)) == sorted(cast("list[int]", starts))
    assert 8 == store.queue("done").stats().ready


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_transaction_that_a_handler_leaves_open_is_rolled_back_and_a_failed_attempt(
    store: Store, own: bool, raises: bool
) -> None:
    """Else it would hold up its own ack, and the others' with it, as long as anybody has it."""
    queue, kept = store.queue("q"), list[Any]()
    queue.enqueue_many(["leaves", "good"])

    def handle(job: RunningJob) -> None:
        if job.payload == "leaves":
            kept.append(job.transaction() if own else store.transaction())
            kept[0].__enter__().queue("effects").enqueue(1)
            if raises:
                raise ValueError("and more")

    summary = drain(store, handle, concurrency=1)
    assert (1, 1) == (summary.succeeded, summary.retried)
    error = (
        "ValueError: and more"
        if raises
        else "TransactionError: the handler has left a transaction open, which was rolled back"
    )
    assert [("leaves", error)] == [(job.payload, job.last_error) for job in queue.jobs()]
    assert [] == store.queue("effects").jobs()


def test_a_consumer_that_a_handler_closes_has_given_back_by_then(store: Store) -> None:
    """As anywhere: the worker's own frames around it hold nothing that would be waited for."""
    store.queue("q").enqueue(1)
    store.queue("others").enqueue_many(range(5))
    ready: list[int] = []

    def handle(job: RunningJob) -> None:
        with store.queue("others").consume("w", batch=5) as consumer:
            assert 0 == next(consumer).payload
        ready.append(store.queue("others").stats().ready)

    drain(store, handle)
    assert [4] == ready


# --- the database's failures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [EngineUnavailableError, EngineBusyError, OutcomeUnknownError])
@pytest.mark.parametrize("operation", ["ack", "claim", "extend", "retry", "next_due"])
def test_a_failure_of_the_database_is_waited_out_and_no_handler_runs_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[Exception], operation: str
) -> None:
    """An operation that fails a few times is done again; after one that was cut off its refusal may mean that it was done (Z-6)."""
    executor = type(store.auto_executor())
    proper = getattr(executor, operation)
    left = [3]

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            if error is OutcomeUnknownError and operation == "ack":
                proper(self, *args, **kwargs)
            raise error("injected")
        return proper(self, *args, **kwargs)

    queue = store.queue("q", visibility_timeout=1.5)
    queue.enqueue_many(["good", "bad"])
    starts: list[object] = []

    def handle(job: RunningJob) -> None:
        starts.append(job.payload)
        time.sleep(0.8)
        if job.payload == "bad" and job.attempt == 1:
            raise Retry(0.1, "again")

    monkeypatch.setattr(executor, operation, failing)
    with Running(Worker(store, {"q": handle})):
        wait_until(lambda: left[0] == 0 and not queue.jobs(), WAIT, "the end")
    assert ["bad", "bad", "good"] == sorted(cast("list[str]", starts))


# --- arguments --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_before_anything_is_claimed(store: Store) -> None:
    """The error names the argument."""
    store.queue("q").enqueue(1)

    def handle(job: RunningJob) -> None:
        pytest.fail("nothing is to run")

    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: Worker(cast(Any, "store"), {"q": handle}), "store"),
        (lambda: Worker(store, {"": handle}), "queue name"),
        (lambda: Worker(store, {"q": cast(Any, 7)}), "handler"),
        (lambda: Worker(store, {"q": handle}, concurrency=0), "concurrency"),
        (lambda: Worker(store, {"q": handle}, concurrency=cast(Any, True)), "concurrency"),
        (lambda: Worker(store, {"q": handle}, worker_id="_mine"), "worker_id"),
        (lambda: Worker(store, {"q": handle}, grace=-1), "grace"),
        (lambda: Worker(store, {"q": handle}, timeout=0), "timeout"),
        (lambda: Worker(store, {"q": handle}, poll_interval=0), "poll_interval"),
        (lambda: Worker(store, {"q": handle}, ack_window=float("nan")), "ack_window"),
        (lambda: Worker(store, {"q": handle}, sweep_interval=0), "sweep_interval"),
        (lambda: Worker(store, {"q": handle}).add("q", handle), "has a handler already"),
        (lambda: Worker(store).run(), "handlers"),
    ]
    for call, name in wrong:
        with pytest.raises(ValidationError, match=name):
            call()
    assert [1] == payloads(store)
    assert 1 == store.queue("q").stats().ready


def test_within_a_transaction_it_is_refused(store: Store) -> None:
    """T-5: it would run outside of it, and on SQLite wait for its end."""
    store.queue("q").enqueue(1)
    worker = Worker(store, {"q": lambda _: None})
    with store.transaction(), pytest.raises(TransactionError, match="has a transaction of the store open"):
        worker.run(until_idle=True)
    assert 1 == worker.run(until_idle=True).succeeded


def test_a_worker_runs_once_at_a_time_and_again_afterwards(store: Store) -> None:
    worker = Worker(store, {"q": lambda _: None})
    with Running(worker):
        wait_until(lambda: worker._run is not None, WAIT, "its start")
        with pytest.raises(RuntimeError, match="runs already"):
            worker.run()
    store.queue("q").enqueue(1)
    assert 1 == worker.run(until_idle=True).succeeded


def test_a_store_that_is_closed_meanwhile_ends_it_with_an_error(open_store: Callable[..., Store]) -> None:
    """What runs has its grace period, and is acked: the worker settles on connections of its own."""
    store, other = open_store(), open_store()
    store.queue("q").enqueue(1)
    begun, go_on = threading.Event(), threading.Event()

    def handle(job: RunningJob) -> None:
        begun.set()
        assert go_on.wait(WAIT)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(Worker(store, {"q": handle}).run)
        assert begun.wait(WAIT)
        store.close()
        go_on.set()
        with pytest.raises(StoreClosedError):
            done.result(WAIT)
    assert [] == other.queue("q").jobs()


def test_threads_that_cannot_be_had_are_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and the worker can be run again."""
    start, left = threading.Thread.start, [3]

    def starting(thread: threading.Thread) -> None:
        if thread.name == "alkstore-runner":
            left[0] -= 1
            if left[0] == 0:
                raise RuntimeError("can't start new thread")
        start(thread)

    store.queue("q").enqueue_many(range(5))
    worker = Worker(store, {"q": lambda _: None})
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", starting)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            worker.run(until_idle=True)
    assert 5 == store.queue("q").stats().ready
    assert 5 == worker.run(until_idle=True).succeeded


# --- it leaves nothing behind -----------------------------------------------------------------------------------------


def held_now() -> tuple[int, int, int]:
    """Return how many objects this process has, how many files and connections, and how many KiB of memory."""
    gc.collect()
    files = len(os.listdir("/dev/fd"))  # noqa: PTH208 - a directory of the system's
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, check=True).stdout
    return len(gc.get_objects()), files, int(told)


def test_threads_connections_and_memory_are_flat_over_many_runs(store: Store) -> None:
    """Each run ends what it began, and no row is left: 200 runs of 250 jobs each, at full length."""
    queue = store.queue("q")
    worker = Worker(store, {"q": lambda _: None}, concurrency=4)

    def work(runs: int) -> None:
        for _ in range(runs):
            queue.enqueue_many(range(250))
            assert 250 == worker.run(until_idle=True).succeeded

    work(5)
    threads, (objects, files, memory) = threading.active_count(), held_now()
    work(rounds(200))
    wait_until(lambda: threading.active_count() <= threads + 1, WAIT, "the threads to end")
    objects_after, files_after, memory_after = held_now()
    assert objects_after <= objects + 1_000
    assert files_after <= files + 2
    assert memory_after <= memory + 16 * 1_024
    assert [] == store.queues()
