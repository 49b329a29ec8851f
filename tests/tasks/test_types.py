"""`enqueue` takes what the function takes: a type checker says so, and so does the library when it runs.

`make check` looks at this file, too: an ignored complaint that isn't made there is an error.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import assert_type

import pytest

from alkstore import RunningJob, Transaction, ValidationError
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.tasks.job import TaskJob

tasks = Tasks()


@tasks.task
def bare(to: str) -> int:
    return len(to)


@tasks.task(queue="emails", max_attempts=8)
def send(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@tasks.task(queue="emails", pass_job=True)
def work(job: RunningJob, n: int) -> str:
    return f"{job.id} {n}"


def right(tx: Transaction, job: RunningJob) -> None:
    """Never called: for the type checker."""
    assert_type(bare("a"), int)
    assert_type(send.enqueue("a"), TaskJob[int])
    assert_type(send.enqueue(to="a", subject="b", tx=tx), TaskJob[int])
    assert_type(send.options(delay=5, tx=tx).enqueue("a", "b"), TaskJob[int])
    assert_type(send.enqueue_many([{"to": "a"}]), list[TaskJob[int]])
    assert_type(send.enqueue("a").result(5), int)
    assert_type(work(job, 7), str)
    assert_type(work.enqueue(n=7).result(), str)


def test_a_wrong_argument_is_refused_by_both(store: Store) -> None:
    tasks.bind(store)
    with pytest.raises(ValidationError):
        send.enqueue(too="a")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        send.enqueue()  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        send.options(priority=1).enqueue("a", "b", "c")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        send.options(later=1).enqueue("a")  # pyright: ignore[reportCallIssue, reportUnknownMemberType]
    with pytest.raises(ValidationError):
        bare.enqueue()  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        work.enqueue(1, 2)  # pyright: ignore[reportCallIssue]
    assert [] == store.queues()


def test_a_wrong_type_is_the_type_checkers_to_find(store: Store) -> None:
    """What is stored is what JSON can hold: nobody reads annotations when it runs."""
    tasks.bind(store)
    send.enqueue(to=1)  # pyright: ignore[reportArgumentType]
    assert ["emails"] == store.queues()
