"""Waiting for jobs: woken by whatever makes one ready, and never dependent on it (W-4, Q-ENQ-4, Z-2, Z-11, S-3)."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, cast

import pytest

from alkstore import State, StoreClosedError, TransactionError, ValidationError
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.children import Child
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Harness
from contract_tests.interrupting import on_top_of
from contract_tests.scale import rounds, scale
from contract_tests.steps import Leave, Peek, claimed, eventually, found, leaving, promptly
from contract_tests.together import WAIT

NEVER = 3_600
"""A poll interval that comes to no test's help."""
SOON = 30.0
"""Seconds within which a wake must have come: far below ``NEVER``, and no judgement of speed."""


@pytest.fixture
def live(open_store: OpenStore, queue_name: str) -> Queue:
    """A queue that goes by the real time."""
    return open_store().queue(queue_name)


@pytest.fixture
def consumed(live: Queue) -> Iterator[Future[object]]:
    """What a consumer in another thread, which polls never, gets first; it is waiting already."""
    started = threading.Event()

    def consume() -> object:
        consumer = live.consume("waiting", poll_interval=NEVER)
        started.set()
        with consumer:
            handle = next(consumer)
            handle.ack()
            return handle.payload

    with ThreadPoolExecutor(1) as thread:
        future: Future[object] = thread.submit(consume)
        started.wait(WAIT)
        yield future
        if not future.done():
            live.enqueue("the test is over")


@clause("W-4")
def test_waiting_says_whether_a_claim_is_worth_trying(live: Queue) -> None:
    """At once where there is a job, and not at all where there is none."""
    assert False is live.wait(0)
    assert False is live.wait(0.01)
    live.enqueue(1)
    assert True is live.wait(0)
    assert True is live.wait()
    claimed(live)
    assert False is live.wait(0)


def released(queue: Queue) -> None:
    """Take a job that is there, and give it back."""
    assert claimed(queue, "other").release()


def retried(queue: Queue) -> None:
    """Take a job that is there, and retry it."""
    assert claimed(queue, "other").retry("x", delay=0)


def revived(queue: Queue) -> None:
    """Let a job die, and bring it back."""
    handle = claimed(queue, "other")
    assert handle.fail("x")
    assert queue.retry_dead(handle.id)


@clause("W-4", "Q-ENQ-4")
@pytest.mark.parametrize("count", [1, 3, 2_500])
def test_an_enqueue_wakes(count: int, live: Queue, consumed: Future[object]) -> None:
    """Of one job, and of many."""
    if count == 1:
        live.enqueue(0)
    else:
        live.enqueue_many(range(count))
    assert 0 == consumed.result(SOON)
    assert count - 1 == live.stats().ready


@clause("W-4")
@pytest.mark.parametrize("deed", [released, retried, revived])
def test_whatever_makes_a_job_ready_wakes(deed: Callable[[Queue], None], live: Queue) -> None:
    """A release, a retry and a revival do."""
    live.enqueue("work")
    others = claimed(live, "others")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: live.wait(SOON))
        assert others.release()
        assert True is waiting.result(SOON)
        deed(live)
        assert True is live.wait(SOON)
    assert "work" == claimed(live).payload


@clause("W-4", "J-3", needs="transactions")
@pytest.mark.parametrize("how", ["as claimed", "rebuilt", "in a transaction"])
def test_a_claim_that_is_made_shorter_wakes(how: str, open_store: OpenStore, live: Queue) -> None:
    """Its job is due sooner than he knows who sleeps; and maybe not than he knows who shortens it. Nobody polls."""
    store = open_store()
    other = store.queue(live.name)
    live.enqueue("work")
    handle = claimed(other, "other")
    known = other.handle(handle.id, handle.token)
    assert known.heartbeat(extend=6_000)  # which the first handle knows nothing of
    with ThreadPoolExecutor(1) as thread, live.consume("w", poll_interval=NEVER) as consumer:
        waiting = thread.submit(next, consumer)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        if how == "in a transaction":
            with store.transaction() as tx:
                assert tx.bind(handle).heartbeat(extend=0.2)
        else:
            assert (handle if how == "as claimed" else known).heartbeat(extend=0.2)
        assert "work" == waiting.result(SOON).payload


@clause("W-4")
def test_a_job_that_comes_due_wakes(live: Queue, consumed: Future[object]) -> None:
    """At its time, which is sooner than what the waiter knew of."""
    live.enqueue("much later", delay=3_000)
    live.enqueue("due", delay=0.3)
    assert "due" == consumed.result(SOON)


@clause("W-4")
def test_a_lapsing_claim_wakes(live: Queue) -> None:
    """The job of a worker that died is taken up when its time is over."""
    live.enqueue("work")
    dying = live.claim_one("dying")
    assert dying is not None
    assert dying.heartbeat(0.4)
    with live.consume("w", poll_interval=NEVER) as consumer:
        handle = next(consumer)
        assert (dying.id, 2) == (handle.id, handle.attempt)


@clause("W-4", "T-2", needs="transactions")
def test_a_commit_wakes_and_nothing_before_it_does(open_store: OpenStore, live: Queue, queue_name: str) -> None:
    """Nor does a rollback, or what a savepoint undid."""
    other = open_store()
    with ThreadPoolExecutor(1) as thread:
        with leaving(), other.transaction() as tx:
            tx.queue(queue_name).enqueue("rolled back")
            raise Leave
        waiting = thread.submit(lambda: live.wait(SOON))
        with other.transaction() as tx:
            with leaving(), tx.transaction() as inner:
                inner.queue(queue_name).enqueue("undone")
                raise Leave
            tx.queue(queue_name).enqueue("committed")
            assert not waiting.done()
        assert True is waiting.result(SOON)
    assert ["committed"] == [job.payload for job in live.jobs()]


@clause("W-4", "N-3")
def test_another_queues_jobs_do_not_wake(open_store: OpenStore, live: Queue) -> None:
    """A wait ends for its own queue only."""
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: live.wait(1))
        open_store().queue("another").enqueue_many(range(10))
        assert False is waiting.result(SOON)


@clause("W-4", "Q-ENQ-4", needs=("processes", "notify"))
def test_no_wake_is_lost_between_processes(harness: Harness, place: str, live: Queue) -> None:
    """Round after round a job is enqueued within 2 ms of a wait's beginning, and nothing polls."""
    dice = random.Random()
    with Child(harness, place, "enqueue_on_demand", queue=live.name) as child:
        assert "begun" == child.hear()
        with live.consume("w", poll_interval=NEVER) as consumer:
            for turn in range(rounds(1_000)):
                timer = threading.Timer(dice.uniform(0, 0.002), child.tell)
                timer.start()
                handle = next(consumer)
                assert turn == handle.payload
                assert handle.ack()
                timer.join()


@clause("W-4", "Q-ENQ-4")
def test_no_wake_is_lost_between_threads(live: Queue) -> None:
    """The same, with several consumers of one store: each job is taken, whoever takes it."""
    count, size = rounds(1_000), 4
    stop = threading.Event()
    taken: list[int] = []
    news: SimpleQueue[int] = SimpleQueue()

    def consume() -> None:
        for handle in live.consume("w", poll_interval=NEVER, stop=stop):
            taken.append(handle.payload)
            news.put(handle.payload)
            handle.ack()

    dice = random.Random()
    with ThreadPoolExecutor(size) as threads:
        running = [threads.submit(consume) for _ in range(size)]
        for turn in range(count):
            live.enqueue(turn)
            assert turn == news.get(timeout=SOON)
            assert turn + 1 == len(taken)
            time.sleep(dice.uniform(0, 0.001))
        stop.set()
        for each in running:
            each.result(SOON)
    assert list(range(count)) == sorted(taken)


@clause("W-4")
@pytest.mark.parametrize("many", [True, False])
def test_jobs_wake_as_many_workers_as_can_use_them(many: bool, live: Queue) -> None:
    """Four jobs at once, four idle workers: all four are at work at the same time."""
    size = 4
    at_work = threading.Barrier(size)

    def consume() -> None:
        with live.consume("w", poll_interval=NEVER) as consumer:
            handle = next(consumer)
            at_work.wait(SOON)
            handle.ack()

    with ThreadPoolExecutor(size) as threads:
        running = [threads.submit(consume) for _ in range(size)]
        if many:
            live.enqueue_many(range(size))
        else:
            for turn in range(size):
                live.enqueue(turn)
        for each in running:
            each.result(SOON)


@clause("W-4", "J-6")
def test_leaving_a_consumer_gives_back_what_it_had_not_given(live: Queue) -> None:
    """With its attempt; and what it gave is neither acked nor released."""
    live.enqueue_many(range(5))
    with live.consume("w", batch=3) as consumer:
        first = next(consumer)
        assert 3 == live.stats().processing
    assert (1, 4) == (live.stats().processing, live.stats().ready)
    assert [1, 0, 0, 0, 0] == [job.attempts for job in live.jobs()]
    for handle in live.consume("w", batch=2):
        assert 1 == handle.payload
        break
    assert (2, 3) == (live.stats().processing, live.stats().ready)
    assert first.ack()
    with pytest.raises(StopIteration):
        next(consumer)


@clause("W-4", "Z-2")
def test_leaving_the_queues_block_closes_its_consumers(live: Queue, store: Store) -> None:
    """The handle remains usable."""
    live.enqueue_many(range(3))
    with live as queue:
        consumer = queue.consume("w", batch=3)
        next(consumer)
    assert 2 == live.stats().ready
    assert [] == list(consumer)
    assert True is live.wait(0)


@clause("W-4")
@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_consumer_that_waits_can_be_ended_from_another_thread(how: str, live: Queue) -> None:
    """Promptly, and well: its loop just ends."""

    def end() -> float:
        stop = threading.Event()
        consumer = live.consume("w", poll_interval=NEVER, stop=stop)
        with ThreadPoolExecutor(1) as thread:
            looping = thread.submit(lambda: list(consumer))
            with pytest.raises(TimeoutError):
                looping.result(0.2)
            start = time.monotonic()
            if how == "stop":
                stop.set()
            else:
                consumer.close()
            assert [] == looping.result(SOON)
            return time.monotonic() - start

    promptly(end)
    assert [] == list(live.consume("w", stop=_set()))


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@clause("W-4", "S-3")
def test_closing_the_store_ends_those_who_wait(open_store: OpenStore, queue_name: str) -> None:
    """With the error that says so, promptly."""

    def end() -> float:
        store = open_store()
        queue = store.queue(queue_name)
        with ThreadPoolExecutor(2) as threads:
            waiting = threads.submit(queue.wait)
            consuming = threads.submit(lambda: list(queue.consume("w", poll_interval=NEVER)))
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
            start = time.monotonic()
            store.close()
            for each in (waiting, consuming):
                with pytest.raises(StoreClosedError):
                    each.result(SOON)
            took = time.monotonic() - start
        for call in (queue.wait, lambda: queue.consume("w")):
            with pytest.raises(StoreClosedError):
                call()
        return took

    promptly(end)


@clause("W-4", "T-5", needs="transactions")
def test_nobody_waits_within_a_transaction(store: Store, queue: Queue) -> None:
    """What is open would be kept open, and on some engines see nothing new."""
    with store.transaction() as tx:
        within = tx.queue(queue.name)
        for call in (queue.wait, within.wait, lambda: within.consume("w"), lambda: queue.consume("w")):
            with pytest.raises(TransactionError):
                call()


@clause("W-4", "Z-1")
def test_what_cannot_be_is_refused(queue: Queue) -> None:
    """By an error that names the argument."""
    consume: Any = queue.consume
    for arguments, name in (
        (("",), "worker_id"),
        (("w", {"batch": 0}), "batch"),
        (("w", {"batch": True}), "batch"),
        (("w", {"poll_interval": 0}), "poll_interval"),
        (("w", {"poll_interval": -1}), "poll_interval"),
        (("w", {"stop": True}), "stop"),
    ):
        worker, options = arguments if len(arguments) == 2 else (arguments[0], cast("dict[str, Any]", {}))
        with pytest.raises(ValidationError, match=name):
            consume(worker, **options)
    with pytest.raises(ValidationError, match="timeout"):
        queue.wait(-1)


@clause("W-4", "Z-11")
def test_a_stores_own_clock_is_read_at_each_look(store: Store, queue: Queue, clock: Any) -> None:
    """Waiting takes real time; what is due is judged by the clock."""
    job_id = queue.enqueue("later", delay=100)
    assert False is queue.wait(0)
    clock.advance(100)
    assert True is queue.wait(0)
    with queue.consume("w", poll_interval=0.05) as consumer:
        handle = next(consumer)
        assert job_id == handle.id
        assert handle.ack()
        queue.enqueue("later still", delay=100)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(next, consumer)
            clock.advance(200)
            assert "later still" == waiting.result(SOON).payload


@clause("W-4", "Q-CLAIM-6")
def test_a_consumer_buries_what_has_lapsed_for_the_last_time(live: Queue, peek: Peek) -> None:
    """It looks for that, too, though there is nothing to have."""
    job_id = live.enqueue("work", max_attempts=1)
    dying = live.claim_one("dying")
    assert dying is not None
    assert dying.heartbeat(0.3)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        looping = thread.submit(lambda: list(live.consume("w", poll_interval=NEVER, stop=stop)))
        eventually(lambda: found(live, job_id).state is State.DEAD or None, "the job to be buried", SOON)
        stop.set()
        assert [] == looping.result(SOON)
    assert State.DEAD is found(live, job_id).state


@clause("Z-14", "Q-ENQ-4", needs=("processes", "notify"))
@pytest.mark.parametrize("batch", [1, 5])
def test_a_process_that_ends_right_after_its_commit_has_rung(
    batch: int, harness: Harness, place: str, live: Queue
) -> None:
    """Closing the store waits for the doorbell: nobody polls here."""
    with live.consume("w", poll_interval=NEVER) as consumer:
        for turn in range(max(3, rounds(20))):
            with Child(harness, place, "enqueue_on_demand", queue=live.name) as child:
                assert "begun" == child.hear()
                for _ in range(batch):
                    child.tell()
                child.finish()
            assert [*range(batch)] == [_acked(next(consumer)) for _ in range(batch)], turn


def _acked(handle: JobHandle) -> object:
    assert handle.ack()
    return handle.payload


class Circle:
    """A consumer in a circle, which only the collector finds."""

    def __init__(self, queue: Queue) -> None:
        self.me = self
        self.consumer = queue.consume("w", batch=4)


@clause("W-4", "J-6")
@pytest.mark.parametrize("how", ["closed", "collected"])
def test_a_consumer_may_be_ended_on_top_of_any_call(how: str, open_store: OpenStore, queue_name: str) -> None:
    """By a signal handler, or the collector: nobody waits for himself, and what it hadn't given is soon there again."""
    queue = open_store(lock_timeout=2).queue(queue_name)
    total = 0
    for _ in range(rounds(200)):
        queue.enqueue_many(range(4))
        circle = Circle(queue)
        handle = next(circle.consumer)
        end = gc.collect if how == "collected" else circle.consumer.close
        gc.disable()
        del circle

        step = random.randrange(total) if total else None
        try:
            with on_top_of(step, end) as steps:
                assert handle.ack()
                queue.enqueue("more")
                queue.wait(0)
                other = queue.claim_one("other")
            total = steps.taken
            end()
        finally:
            gc.enable()
        mine = 0 if other is None else int(other.ack())
        eventually(lambda mine=mine: queue.stats().ready == 4 - mine or None, f"what was given back at step {step}", 20)
        for each in queue.claim_batch("cleaning", 100):
            assert each.ack()


@clause("W-4", "S-3")
def test_a_consumer_may_be_closed_on_top_of_its_own_waiting(live: Queue) -> None:
    """At any step of it, on the way into its sleep, and nothing polls."""
    total = 0
    assert False is live.wait(0)  # so that what hears of others is there in each round
    for _ in range(rounds(200)):
        consumer = live.consume("w", poll_interval=NEVER)
        # Where it sleeps before it comes to the step, another thread closes it.
        timer = threading.Timer(0.5, consumer.close)
        timer.start()
        with on_top_of(random.randrange(total) if total else None, consumer.close) as steps:
            assert [] == list(consumer)
        timer.cancel()
        total = min(total, steps.taken) if total else steps.taken


@clause("W-4", "S-3")
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals can't be sent to a thread here")
@pytest.mark.parametrize("busy", [False, True], ids=["waiting", "working"])
def test_a_signal_handler_may_close_the_consumer(busy: bool, open_store: OpenStore, queue_name: str) -> None:
    """At whatever moment the signal comes; its loop just ends, and what it hadn't given is there again."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("handlers run in the main thread only")
    queue = open_store(lock_timeout=2).queue(queue_name)
    main = threading.get_ident()
    consumers: list[Any] = []

    def handle_signal(*_: object) -> None:
        consumers[-1].close()

    before = signal.signal(signal.SIGUSR1, handle_signal)
    end = time.monotonic() + 10 * scale()
    try:
        while time.monotonic() < end:
            if busy:
                queue.enqueue_many(range(30))
            consumers.append(queue.consume("w", batch=10, poll_interval=NEVER))
            timer = threading.Timer(random.uniform(0, 0.005), signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            for handle in consumers[-1]:
                assert handle.ack()
            timer.join()
            consumers[-1].close()
            eventually(lambda: queue.stats().processing == 0 or None, "what was claimed to be given back", 20)
            queue.purge(State.PENDING)
    finally:
        signal.signal(signal.SIGUSR1, before)


@clause("W-4", "T-5", needs="transactions")
def test_a_consumer_may_be_closed_within_a_transaction(open_store: OpenStore, queue_name: str) -> None:
    """Nobody waits for what the transaction holds; what it hadn't given is there again soon after."""
    store = open_store(lock_timeout=5)
    queue = store.queue(queue_name)
    queue.enqueue_many(range(3))
    consumer = queue.consume("w", batch=3)
    handle = next(consumer)
    with store.transaction() as tx:
        tx.bind(handle).ack()
        consumer.close()
    eventually(lambda: queue.stats().ready == 2 or None, "what was given back", 20)
    assert [0, 0] == [job.attempts for job in queue.jobs()]


@clause("W-4", "J-6")
@pytest.mark.parametrize("how", ["close", "drop", "exhaust"])
def test_an_ordinary_end_has_given_back_at_once(how: str, live: Queue) -> None:
    """When the call returns; nobody has to wait for it."""
    stop = threading.Event()
    for _ in range(max(3, rounds(50))):
        live.enqueue_many(range(4))
        consumer = live.consume("w", batch=4, stop=stop)
        first = next(consumer)
        if how == "close":
            consumer.close()
        elif how == "drop":
            del consumer
        else:
            stop.set()
            assert [] == list(consumer)
            stop.clear()
        assert (1, 3) == (live.stats().processing, live.stats().ready)
        assert first.ack()
        assert live.purge(State.PENDING) == 3
