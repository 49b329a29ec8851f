"""A worker runs tasks: which one, with what, and what becomes of its job."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from alkstore import Fail, ResultError, ResultTimeoutError, Retry, RunningJob, State, ValidationError, Worker
from alkstore.store import Store
from alkstore.tasks import Tasks
from tests.support.waiting import wait_until
from tests.worker.running import Running

WAIT = 60


@pytest.fixture
def tasks(store: Store) -> Tasks:
    return Tasks(store)


def run(tasks: Tasks, **options: Any) -> Any:
    """Run a worker on all tasks until it is idle, and return its summary."""
    return tasks.worker(**options).run(until_idle=True)


# --- what is called ---------------------------------------------------------------------------------------------------


def test_each_task_is_called_with_its_arguments(tasks: Tasks) -> None:
    """Two of one queue, one of another."""
    seen: list[object] = []

    @tasks.task(queue="a")
    def one(x: int, y: int = 2) -> None:
        seen.append(("one", x, y))

    @tasks.task(queue="a")
    def two(x: int, /, *, z: list[int]) -> None:
        seen.append(("two", x, z))

    @tasks.task(queue="b")
    def three(*rest: int, **more: object) -> None:
        seen.append(("three", rest, more))

    one.enqueue(1)
    one.enqueue(y=3, x=1)
    two.enqueue(1, z=[4])
    three.enqueue(1, 2, x=(3,))
    three.enqueue()
    assert 5 == run(tasks).succeeded
    expected: list[object] = [
        ("one", 1, 2),
        ("one", 1, 3),
        ("three", (), {}),
        ("three", (1, 2), {"x": [3]}),
        ("two", 1, [4]),
    ]
    assert expected == sorted(seen, key=str)


def test_a_task_may_ask_for_the_running_job(store: Store, tasks: Tasks) -> None:
    """Then it is no argument of `enqueue`; and its transaction makes the effect and the ack one (J-10)."""
    seen: list[object] = []

    @tasks.task(pass_job=True)
    def work(job: RunningJob, x: int) -> None:
        with job.transaction() as tx:
            seen.append((job.id, job.attempt, x))
            tx.queue("effects").enqueue(x)

    made = work.enqueue(x=1)
    summary = run(tasks)
    assert (1, 0) == (summary.succeeded, summary.lost)
    assert [(made.id, 1, 1)] == seen
    assert [1] == [job.payload for job in store.queue("effects").jobs()]
    assert [] == store.queue("default").jobs()


def test_a_task_may_enqueue_another_in_its_workers_store(store: Store) -> None:
    """Also where nothing was bound: the running job knows where it comes from."""
    tasks = Tasks()
    seen: list[int] = []

    @tasks.task
    def countdown(n: int) -> None:
        seen.append(n)
        if n:
            countdown.enqueue(n - 1)

    with store.transaction() as tx:
        countdown.enqueue(3, tx=tx)
    assert 4 == tasks.worker(store).run(until_idle=True).succeeded
    assert [3, 2, 1, 0] == seen
    with pytest.raises(ValidationError, match="no store yet"):
        countdown.enqueue(0)


def test_a_worker_may_have_some_of_the_queues_only(store: Store, tasks: Tasks) -> None:
    """And one that no task goes to any more, but whose jobs are still there."""
    seen: list[str] = []

    @tasks.task(name="old", queue="a")
    def old() -> None:
        seen.append("old")

    @tasks.task(queue="b")
    def other() -> None:
        seen.append("other")

    other.enqueue()
    store.queue("before").enqueue({"task": "old", "args": {}})
    run(tasks, queues=["before"])
    assert ["old"] == seen
    with pytest.raises(ValidationError, match="queues must be an iterable"):
        tasks.worker(queues="b")


def test_tasks_without_any_have_no_worker_to_run(tasks: Tasks) -> None:
    with pytest.raises(ValidationError, match="handlers must name one queue"):
        run(tasks)


# --- what becomes of it -----------------------------------------------------------------------------------------------


def test_what_a_task_raises_decides_as_in_a_handler(store: Store, tasks: Tasks) -> None:
    @tasks.task
    def work(how: str) -> None:
        match how:
            case "later":
                raise Retry(3_000, "not yet")
            case "dead":
                raise Fail("never")
            case _:
                raise ValueError("broken")

    work.enqueue_many([{"how": how} for how in ("later", "dead", "broken")])
    summary = run(tasks)
    assert (0, 2, 1) == (summary.succeeded, summary.retried, summary.died)
    found = {job.payload["args"]["how"]: (job.state, job.last_error) for job in store.queue("default").jobs()}
    assert {
        "later": (State.PENDING, "not yet"),
        "dead": (State.DEAD, "never"),
        "broken": (State.PENDING, "ValueError: broken"),
    } == found


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"task": "gone", "args": {}}, "there is no task 'gone' here"),
        ({"task": "gone"}, "its payload is no task's"),
        ({"task": 7, "args": {}}, "its payload is no task's"),
        ([1], "its payload is no task's"),
    ],
)
def test_a_job_of_no_known_task_is_released_with_its_attempt(
    store: Store, tasks: Tasks, caplog: pytest.LogCaptureFixture, payload: object, why: str
) -> None:
    """For a worker that knows it (J-6), and the log says why."""
    tasks.task(name="known", timeout=5)(lambda: None)
    store.queue("default").enqueue(payload)
    with caplog.at_level(logging.WARNING, logger="alkstore.worker"):
        assert 1 == run(tasks).released
    (job,) = store.queue("default").jobs()
    assert (State.PENDING, 0) == (job.state, job.attempts)
    assert job.run_at > job.created_at
    assert why in caplog.text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"a": 1, "b": 2, "c": 3}, "it takes no argument 'c'"),
        ({"a": 1}, "it needs an argument 'b'"),
        ({"a": 1, "b": 2, "rest": 3}, r"its *rest can't be 3"),
        ({"a": 1, "b": 2, "more": []}, r"its **more can't be []"),
    ],
)
def test_arguments_that_do_not_fit_any_more_are_a_failed_attempt_that_says_so(
    store: Store, tasks: Tasks, arguments: dict[str, object], why: str
) -> None:
    called: list[object] = []

    @tasks.task(name="work")
    def work(a: int, b: int, *rest: int, **more: int) -> None:
        called.append(a)

    store.queue("default").enqueue({"task": "work", "args": arguments})
    assert 1 == run(tasks).retried
    (job,) = store.queue("default").jobs()
    assert f"ValidationError: the arguments don't fit the task 'work' as it is here: {why}" == job.last_error
    assert [] == called


def test_a_default_that_is_new_here_stands_before_what_was_stored(store: Store, tasks: Tasks) -> None:
    """Of arguments that were stored before there was a parameter in front of them."""
    seen: list[object] = []

    @tasks.task(name="work")
    def work(first: int = 7, *rest: int, last: int = 8) -> None:
        seen.append((first, rest, last))

    store.queue("default").enqueue({"task": "work", "args": {"rest": [1, 2]}})
    assert 1 == run(tasks).succeeded
    assert [(7, (1, 2), 8)] == seen


def test_a_payload_that_cannot_be_decoded_is_a_failed_attempt(store: Store, tasks: Tasks) -> None:
    """Also where the task's timeout is to be looked up in it (Q-CLAIM-7)."""
    tasks.task(timeout=5)(lambda: None)

    class Unknown:
        name = "unknown"

        def encode(self, payload: object) -> bytes:
            return b"x"

        def decode(self, data: bytes) -> object:
            raise ValueError("unreadable")

    store.queue("default", codec=Unknown()).enqueue(1)
    assert 1 == run(tasks).retried
    assert "PayloadError" in str(store.queue("default").jobs()[0].last_error)


def test_each_task_has_its_own_timeout(store: Store, tasks: Tasks) -> None:
    """And one that has none, the worker's."""
    release = threading.Event()

    @tasks.task(timeout=0.2)
    def short() -> None:
        assert release.wait(WAIT)

    @tasks.task(timeout=WAIT)
    def long() -> None:
        assert release.wait(WAIT)

    @tasks.task
    def other() -> None:
        assert release.wait(WAIT)

    made = {task.name: task.options(max_attempts=1).enqueue().id for task in (short, long, other)}
    with Running(tasks.worker(timeout=0.4)):
        for task, seconds in ((short, 0.2), (other, 0.4)):
            dead = wait_until(lambda task=task: _dead(store, made[task.name]), WAIT, "the timeout")
            assert f"TimeoutError: the handler ran for more than {seconds} s" == dead
        assert store.queue("default").get_job(made[long.name]) is not None
        release.set()
        wait_until(lambda: store.queue("default").get_job(made[long.name]) is None, WAIT, "the long one's ack")


def _dead(store: Store, job_id: int) -> str | None:
    job = store.queue("default").get_job(job_id)
    return job.last_error if job is not None and job.state is State.DEAD else None


# --- results ----------------------------------------------------------------------------------------------------------


def test_what_a_task_returns_is_its_result(store: Store, tasks: Tasks, open_store: Callable[..., Store]) -> None:
    """For whoever has the job, or its id, in this store or another (Z-17)."""

    @tasks.task(keep_result=60)
    def double(n: int) -> dict[str, int]:
        return {"n": 2 * n}

    made = double.enqueue(3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(made.result, WAIT)
        run(tasks)
        assert {"n": 6} == waiting.result(WAIT)
    tasks.bind(open_store())
    assert {"n": 6} == double.job(made.id).result(0)


def test_a_result_that_is_not_there_is_an_error_that_says_why(store: Store, tasks: Tasks) -> None:
    @tasks.task(keep_result=60)
    def work() -> None:
        raise Fail("no such number")

    made = work.enqueue()
    with pytest.raises(ResultTimeoutError, match=f"job {made.id} of the task .* within 0 s") as late:
        made.result(0)
    assert isinstance(late.value, TimeoutError)
    run(tasks)
    with pytest.raises(ResultError, match="is dead: no such number"):
        made.result()
    assert 1 == store.queue("default").purge("dead")
    with pytest.raises(ResultError, match="is gone"):
        made.result()
    cancelled = work.enqueue()
    assert store.queue("default").cancel(cancelled.id)
    with pytest.raises(ResultError, match="was cancelled"):
        cancelled.result()
    with pytest.raises(ValidationError, match="keep_result"):
        tasks.task(name="other")(lambda: None).enqueue().result(0)


# --- in other processes -----------------------------------------------------------------------------------------------


def test_its_handlers_are_found_in_another_process_by_module_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def work(): ...", vars(module))  # noqa: S102 - a module that isn't there
    tasks = Tasks()
    tasks.task(vars(module)["work"])
    with pytest.raises(pickle.PicklingError, match="in a variable of a module"):
        pickle.dumps(tasks.handlers()["default"])
    vars(module)["jobs"] = tasks
    written = pickle.dumps(tasks.handlers()["default"])
    assert b"shop_of_this_test" in written
    again = pickle.loads(written)  # noqa: S301 - written here
    assert again._tasks is tasks


def test_a_worker_takes_its_handlers_beside_others(store: Store, tasks: Tasks) -> None:
    seen: list[object] = []

    @tasks.task
    def work(n: int) -> None:
        seen.append(n)

    work.enqueue(1)
    store.queue("plain").enqueue(2)

    def plain(job: RunningJob) -> None:
        seen.append(job.payload)

    assert 2 == Worker(store, {**tasks.handlers(), "plain": plain}).run(until_idle=True).succeeded
    assert [1, 2] == sorted(map(int, map(str, seen)))
