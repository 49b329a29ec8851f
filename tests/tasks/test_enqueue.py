"""Calls of tasks become jobs: what is stored, and what is refused before anything is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

import alkstore
from alkstore import Backoff, PayloadError, TransactionError, ValidationError
from alkstore.store import Store
from alkstore.tasks import Tasks
from tests.integrations.places import Place


@pytest.fixture
def tasks(store: Store) -> Tasks:
    return Tasks(store)


def jobs(store: Store, queue: str = "default") -> list[Any]:
    return [job.payload for job in store.queue(queue).jobs()]


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_the_arguments_are_stored_by_name_however_they_were_passed(store: Store, tasks: Tasks) -> None:
    """The defaults aren't: they are the worker's."""

    @tasks.task(name="send")
    def send(to: str, subject: str = "hi", *, copy: bool = False) -> None: ...

    for job in (send.enqueue("a"), send.enqueue("a", "b"), send.enqueue(subject="b", to="a", copy=True)):
        assert ("default", "send") == (job.queue, job.task)
    arguments = [{"to": "a"}, {"to": "a", "subject": "b"}, {"to": "a", "subject": "b", "copy": True}]
    assert [{"task": "send", "args": given} for given in arguments] == jobs(store)


def test_the_job_that_is_returned_is_the_one_that_is_stored(store: Store, tasks: Tasks) -> None:
    @tasks.task(queue="emails")
    def send(to: str) -> None: ...

    job = send.enqueue("a")
    (stored,) = store.queue("emails").jobs()
    assert (stored.id, "emails") == (job.id, job.queue)
    assert job == send.job(job.id)
    with pytest.raises(AttributeError):
        cast(Any, job).id = 7


def test_a_task_is_called_as_the_function_that_it_is(tasks: Tasks, store: Store) -> None:
    @tasks.task
    def double(number: int, /) -> int:
        """Twice the number."""
        return 2 * number

    assert 6 == double(3)
    assert [] == jobs(store)
    assert ("double", "Twice the number.") == (cast(Any, double).__name__, double.__doc__)


def test_what_a_task_is_decorated_with_is_stamped_on_its_jobs(store: Store, tasks: Tasks) -> None:
    @tasks.task(
        queue="emails",
        max_attempts=8,
        visibility_timeout=90,
        backoff=Backoff(base=7, cap=9),
        dead_letter_retention=3_600,
        priority=3,
        expires=500,
        keep_result=60,
    )
    def send(to: str) -> None: ...

    send.enqueue("a")
    (job,) = store.queue("emails").jobs()
    assert (8, 3, timedelta(seconds=90)) == (job.max_attempts, job.priority, job.visibility_timeout)
    assert timedelta(seconds=60) == job.keep_result
    assert job.expires_at is not None
    assert timedelta(seconds=500) == job.expires_at - job.created_at
    handle = store.queue("emails").claim_one("w")
    assert handle is not None
    row = cast(Any, handle).claim.row
    assert (7, 9, 3_600_000_000) == (row.backoff_base, row.backoff_cap, row.retention)


def test_options_of_one_call_win_over_those_of_the_task(store: Store, tasks: Tasks) -> None:
    @tasks.task(priority=3, expires=500)
    def send(to: str) -> None: ...

    later = send.options(delay=60, priority=5, headers={"trace": "x"})
    later.options(max_attempts=2).enqueue("a")
    send.enqueue("b")
    first, second = store.queue("default").jobs()
    assert (5, 2, {"trace": "x"}) == (first.priority, first.max_attempts, first.headers)
    assert timedelta(seconds=60) == first.run_at - first.created_at
    assert first.expires_at is not None
    assert (3, 5, {}) == (second.priority, second.max_attempts, second.headers)
    assert second.run_at == second.created_at


def test_an_instant_of_one_call_replaces_a_delay_given_before(store: Store, tasks: Tasks) -> None:
    @tasks.task
    def send() -> None: ...

    when = datetime(2041, 1, 1, tzinfo=UTC)
    send.options(delay=60).options(run_at=when).enqueue()
    assert [when] == [job.run_at for job in store.queue("default").jobs()]


def test_many_calls_are_stored_in_order_and_all_or_none(store: Store, tasks: Tasks) -> None:
    @tasks.task(name="send", queue="emails")
    def send(to: str, n: int = 0) -> None: ...

    made = send.options(priority=2).enqueue_many({"to": "a", "n": n} for n in range(30))
    stored = store.queue("emails").jobs()
    assert [job.id for job in stored] == [job.id for job in made]
    assert [{"task": "send", "args": {"to": "a", "n": n}} for n in range(30)] == [job.payload for job in stored]
    assert {2} == {job.priority for job in stored}
    for wrong, why in [
        ([{"to": "a"}, {"too": "b"}], r"calls\[1\].*'to'"),
        ([{"to": "a"}, "b"], r"calls\[1\] must be a mapping"),
        ([{"to": "a"}, {1: "b"}], r"calls\[1\]"),
        ("ab", "calls must be an iterable"),
        ({"to": "a"}, "calls must be an iterable"),
    ]:
        with pytest.raises(ValidationError, match=why):
            send.enqueue_many(cast(Any, wrong))
    assert 30 == len(store.queue("emails").jobs())
    assert [] == send.enqueue_many([])


# --- what is refused --------------------------------------------------------------------------------------------------


def test_arguments_that_the_task_does_not_take_are_refused_by_name(store: Store, tasks: Tasks) -> None:
    """Before anything is written; the error is no `TypeError`, but the library's own."""

    @tasks.task(name="send")
    def send(to: str, /, subject: str = "hi", *, copy: bool = False) -> None: ...

    wrong: list[tuple[tuple[object, ...], dict[str, object], str]] = [
        ((), {}, "'to'"),
        ((), {"to": "a"}, "'to'"),
        (("a",), {"subjekt": "b"}, "'subjekt'"),
        (("a", "b", True), {}, "too many positional arguments"),
        (("a",), {"subject": "b", "delay": 5}, "'delay'"),
    ]
    for args, kwargs, why in wrong:
        with pytest.raises(ValidationError, match=f"task 'send': .*{why}"):
            cast(Any, send).enqueue(*args, **kwargs)
    assert [] == jobs(store)


def test_what_json_cannot_hold_is_refused_with_its_place(store: Store, tasks: Tasks) -> None:
    @tasks.task
    def send(when: object) -> None: ...

    with pytest.raises(PayloadError, match=r"payload\['args'\]\['when'\] is of type datetime"):
        send.enqueue(datetime.now(UTC))
    assert [] == jobs(store)


def test_a_wrong_option_of_one_call_is_refused(store: Store, tasks: Tasks) -> None:
    @tasks.task
    def send() -> None: ...

    for wrong, why in [({"delay": -1}, "delay"), ({"urgent": 1}, "'urgent' is not a job option"), ({"tx": 1}, "tx")]:
        with pytest.raises(ValidationError, match=why):
            cast(Any, send).options(**wrong).enqueue()
    assert [] == jobs(store)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queue": "_mine"}, "queue name"),
        ({"queue": ""}, "queue name"),
        ({"name": "\n"}, "task name"),
        ({"priority": 2**40}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": 0}, "timeout"),
        ({"visibility_timeout": 0}, "visibility_timeout"),
        ({"keep_result": -1}, "keep_result"),
        ({"delay": 5}, "'delay' is not a task option"),
        ({"pass_job": 1}, "pass_job"),
    ],
)
def test_a_wrong_option_of_a_task_is_refused_where_it_is_made(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        cast(Any, Tasks()).task(**options)(lambda: None)


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


def with_tx(tx: int) -> None: ...


def without_parameters(*, job: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "why"),
    [
        (coroutine, {}, "async"),
        (generator, {}, "generator"),
        (with_tx, {}, "'tx'"),
        (without_parameters, {"pass_job": True}, "first parameter"),
        (Store, {}, "must be a function"),
        (7, {}, "must be a function"),
        (7, {"name": "seven"}, "must be a function"),
    ],
)
def test_what_cannot_be_a_task_is_refused_where_it_is_made(function: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        cast(Any, Tasks()).task(**options)(function)


def test_two_tasks_of_one_name_are_refused(tasks: Tasks) -> None:
    tasks.task(name="send")(lambda: None)
    with pytest.raises(ValidationError, match="there is a task 'send' already"):
        tasks.task(name="send")(lambda: None)
    assert ["send"] == [task.name for task in tasks]


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_task_is_called_by_its_module_and_qualified_name(tasks: Tasks) -> None:
    assert "tests.tasks.test_enqueue.without_parameters" == tasks.task(without_parameters).name


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"__name__": "__main__", "__file__": "/srv/shop jobs.py"}, "shop jobs.send"),
        ({"__name__": "__mp_main__", "__file__": "/srv/shop jobs.py"}, "shop jobs.send"),
        (
            {"__name__": "__main__", "__file__": "x.py", "__spec__": type("Spec", (), {"name": "shop.jobs"})},
            "shop.jobs.send",
        ),
        ({"__name__": "__main__"}, "main.send"),
    ],
    ids=["script", "its other name", "python -m", "prompt"],
)
def test_of_a_program_it_is_the_name_under_which_others_import_it(
    tasks: Tasks, variables: dict[str, Any], name: str
) -> None:
    exec("def send(): ...", variables)  # noqa: S102 - a module that isn't there
    assert name == tasks.task(variables["send"]).name


# --- where it is stored -----------------------------------------------------------------------------------------------


def test_tasks_without_a_store_say_so_until_they_are_bound(store: Store, open_store: Callable[..., Store]) -> None:
    tasks = Tasks()
    send = tasks.task(name="send")(lambda: None)
    with pytest.raises(ValidationError, match=r"tasks\.bind\(store\)"):
        send.enqueue()
    tasks.bind(store)
    send.enqueue()
    tasks.bind(lambda: store)
    send.enqueue()
    assert 2 == len(jobs(store))
    for wrong in (None, "sqlite:///jobs.db"):
        with pytest.raises(ValidationError, match="store must be"):
            tasks.bind(cast(Any, wrong))
    tasks.bind(cast(Any, lambda: None))
    with pytest.raises(ValidationError, match="must return an alkstore store"):
        send.enqueue()


def test_within_a_transaction_it_stands_or_falls_with_it(store: Store, tasks: Tasks) -> None:
    @tasks.task(name="send")
    def send(n: int) -> None: ...

    with store.transaction() as tx:
        send.enqueue(1, tx=tx)
        send.options(tx=tx).enqueue(2)
        send.enqueue_many([{"n": 3}, {"n": 4}], tx=tx)
        with pytest.raises(TransactionError):
            send.enqueue(5)
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        send.enqueue(6, tx=tx)
        raise ZeroDivisionError
    assert [1, 2, 3, 4] == [payload["args"]["n"] for payload in jobs(store)]
    with pytest.raises(TransactionError, match="over"):
        send.enqueue(7, tx=tx)


def test_within_a_transaction_no_store_need_be_bound(store: Store) -> None:
    send = Tasks().task(name="send")(lambda: None)
    with store.transaction() as tx:
        send.enqueue(tx=tx)
    assert 1 == len(jobs(store))


def test_it_is_stored_over_a_connection_that_the_application_has_open(sqlite_place: Place) -> None:
    tasks = Tasks()
    send = tasks.task(name="send")(lambda: None)
    with alkstore.open(sqlite_place.url, **sqlite_place.options) as store:
        connection = sqlite3.connect(sqlite_place.path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            send.enqueue(tx=store.join(connection))
            assert [] == jobs(store)
            connection.commit()
        finally:
            connection.close()
        assert 1 == len(jobs(store))
