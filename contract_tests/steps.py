"""Steps that many tests take, and the operations of a handle that many clauses are about."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

import pytest

from alkstore import Job
from alkstore.protocols import JobHandle, Queue
from contract_tests.harness import Row

Peek: TypeAlias = Callable[[], list[Row]]
"""The fixture ``peek``."""

Operation: TypeAlias = Callable[[JobHandle], bool]

SETTLING: Final[dict[str, Operation]] = {
    "ack": lambda handle: handle.ack(),
    "retry": lambda handle: handle.retry("stale", delay=0),
    "retry on the curve": lambda handle: handle.retry(),
    "fail": lambda handle: handle.fail("stale"),
    "release": lambda handle: handle.release(),
    "release later": lambda handle: handle.release(delay=5),
}
OPERATIONS: Final[dict[str, Operation]] = {
    **SETTLING,
    "heartbeat": lambda handle: handle.heartbeat(),
    "long heartbeat": lambda handle: handle.heartbeat(extend=3600),
}

each_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
each_settling = pytest.mark.parametrize("settle", SETTLING.values(), ids=SETTLING.keys())


def claimed(queue: Queue, worker: str = "worker-1") -> JobHandle:
    """Claim a job that must be there."""
    handle = queue.claim_one(worker)
    assert handle is not None
    return handle


def found(queue: Queue, job_id: int) -> Job:
    """Look at a job that must be there."""
    job = queue.get_job(job_id)
    assert job is not None
    return job


def refused(operation: Operation, handle: JobHandle, queue: Queue, peek: Peek) -> None:
    """Check that an operation says ``False``, and that neither the product nor the back door sees a change."""
    before = (peek(), queue.get_job(handle.id))
    assert False is operation(handle)
    assert before == (peek(), queue.get_job(handle.id))


def three_states(queue: Queue) -> tuple[int, int, int]:
    """Make a pending, a processing and a dead job, in this order of their ids."""
    pending = queue.enqueue("pending", delay=1)
    processing, dead = queue.enqueue_many(["processing", "dead"])
    _, second = queue.claim_batch("worker-1", 2)
    assert second.fail("for the test")
    return pending, processing, dead


class Leave(Exception):
    """Raised by a test to leave a block that is to be rolled back or retried."""


@contextmanager
def leaving() -> Generator[None]:
    """Around a block that ends by ``raise Leave``: that very exception must come out of it."""
    try:
        yield
    except Leave:
        return
    raise AssertionError("the block ended well, or the exception was swallowed")


T = TypeVar("T")


def promptly(attempt: Callable[[], float], seconds: float = 1.0) -> None:
    """Make an attempt that returns how long it took, until one took less than ``seconds``; five times at most.

    A machine that is busy with other things may spoil one attempt, and hardly five. What waits for something of its own (the
    next poll, a time limit, a step of a sleep) spoils them all.
    """
    took: list[float] = []
    while len(took) < 5:
        took.append(attempt())
        if took[-1] < seconds:
            return
    raise AssertionError(
        f"at the best of {len(took)} times it took {min(took):.2f} s, and is to take under {seconds:g} s"
    )


def eventually(look: Callable[[], T | None], what: str, seconds: float = 60.0) -> T:
    """Look until there is something, and return it: for what another process has to notice by itself first."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found_now = look()
        if found_now is not None:
            return found_now
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds:g} s in vain for {what}")
