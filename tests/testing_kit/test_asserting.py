"""`assert_enqueued` finds what is to be done, and says what there is instead."""

from __future__ import annotations

from typing import Any, cast

import pytest

from alkstore import TransactionError, ValidationError
from alkstore.store import Store
from alkstore.tasks import Task, Tasks
from alkstore.testing import assert_enqueued, assert_not_enqueued


@pytest.fixture
def tasks(store: Store) -> Tasks:
    return Tasks(store)


@pytest.fixture
def send(tasks: Tasks) -> Task[..., None]:
    @tasks.task(name="shop.send", queue="emails")
    def send(to: str, subject: str = "hi", *, tags: tuple[str, ...] = ()) -> None: ...

    return cast(Any, send)


def test_a_task_is_found_by_the_arguments_that_are_named(store: Store, tasks: Tasks, send: Task[..., None]) -> None:
    """Whatever the others are; defaults count, and what JSON makes a list of may be given as a tuple."""
    first = send.enqueue("a", tags=("x", "y"))
    second = send.enqueue("b", subject="bye")
    for where in (store, tasks, store.queue("emails")):
        assert [first.id, second.id] == [job.id for job in assert_enqueued(where, send)]
        assert [first.id] == [job.id for job in assert_enqueued(where, send, args={"to": "a"}, count=1)]
        assert [first.id] == [job.id for job in assert_enqueued(where, send, args={"subject": "hi"})]
        assert [first.id] == [job.id for job in assert_enqueued(where, send, args={"tags": ("x", "y")})]
        assert [second.id] == [job.id for job in assert_enqueued(where, send, args={"tags": ()})]
        assert_not_enqueued(where, send, args={"to": "a", "subject": "bye"})
        assert_enqueued(where, send, args={"to": "c"}, count=0)


def test_the_failure_lists_what_there_is(store: Store, tasks: Tasks, send: Task[..., None]) -> None:
    with pytest.raises(AssertionError, match="nothing is to be done in there"):
        assert_enqueued(tasks, send)
    job = send.enqueue("a", subject="bye")
    store.queue("emails").enqueue([1])
    store.queue("emails", codec="raw").enqueue(b"\xff")
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(tasks, send, args={"to": "b"})
    assert str(failed.value) == (
        "there should be a job of the task 'shop.send' in the queue 'emails' with to='b', and there are 0; to be done in "
        f"there is\n  {job.id}: shop.send(to='a', subject='bye')\n  {job.id + 1}: [1]\n  {job.id + 2}: b'\\xff'"
    )
    with pytest.raises(AssertionError, match=r"exactly 2 jobs .*, and there are 1;"):
        assert_enqueued(tasks, send, count=2)
    with pytest.raises(AssertionError, match=r"no job of the task .*, and there are 1;.*\n.*to='a'"):
        assert_not_enqueued(tasks, send)
    send.enqueue_many([{"to": "x"}] * 30)
    with pytest.raises(AssertionError, match=r"\.\.\. and 13 more"):
        assert_not_enqueued(tasks, send)


def test_a_plain_queue_is_asked_by_its_payloads(store: Store) -> None:
    queue = store.queue("q")
    queue.enqueue({"n": (1, 2)})
    queue.enqueue(None)
    assert 2 == len(assert_enqueued(store, "q"))
    assert 2 == len(assert_enqueued(queue))
    assert 1 == len(assert_enqueued(store, "q", payload={"n": (1, 2)}))
    assert 1 == len(assert_enqueued(store, "q", payload=None))
    assert_not_enqueued(store, "q", payload={"n": 1})
    assert_not_enqueued(store, "other")
    with pytest.raises(AssertionError, match="in the queue 'q' with the payload 7, and there are 0"):
        assert_enqueued(store, "q", payload=7)


def test_what_is_claimed_is_still_to_be_done_and_what_is_dead_is_not(store: Store) -> None:
    queue = store.queue("q")
    queue.enqueue_many([1, 2])
    handle = queue.claim_one("w")
    assert handle is not None
    assert_enqueued(queue, count=2)
    assert handle.fail()
    assert_enqueued(queue, count=1)


def test_within_a_transaction_its_own_queue_is_asked(store: Store, tasks: Tasks, send: Task[..., None]) -> None:
    with store.transaction() as tx:
        send.enqueue("a", tx=tx)
        assert_enqueued(tx.queue("emails"), send, args={"to": "a"})
        with pytest.raises(TransactionError):
            assert_enqueued(tasks, send)


def test_a_question_that_cannot_be_is_refused(store: Store, tasks: Tasks, send: Task[..., None]) -> None:
    """Lest a slip of the keyboard make a test pass."""
    for ask in (
        lambda: assert_not_enqueued(store, send, args={"too": "a"}),
        lambda: assert_not_enqueued(store, "emails", args={"to": "a"}),
        lambda: assert_not_enqueued(store),
        lambda: assert_not_enqueued(cast(Any, 7), send),
        lambda: assert_not_enqueued(store, cast(Any, 7)),
        lambda: assert_not_enqueued(store.queue("other"), send),
        lambda: assert_not_enqueued(store, "q", payload=object()),
    ):
        with pytest.raises(ValidationError):
            ask()
