"""Handlers that a worker's processes import, and a diary in which they note what they do."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import alkstore
from alkstore import Fail, Retry, RunningJob, Unhandled
from tests.support.waiting import wait_until

WAIT = 60


class Diary:
    """A file to which processes append lines; whatever ends them, a line is there whole or not at all."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def note(self, *words: object) -> None:
        line = " ".join(map(str, words)) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def said(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.lines() if line[0] == word]


class Unprintable(Exception):
    """An exception that can be neither printed nor pickled."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("no pickle")


def deny(job: RunningJob) -> None:
    """Raise what the payload asks for."""
    raised: dict[str, Callable[[], BaseException]] = {
        "error": lambda: ValueError("nope"),
        "exit": lambda: SystemExit(3),
        "interrupt": KeyboardInterrupt,
        "unprintable": Unprintable,
        "unstorable": lambda: ValueError("a\0b\ud800"),
        "huge": lambda: ValueError("x" * 5_000_000),
        "retry": lambda: Retry(3_000.5, "not yet"),
        "curve": lambda: Retry(reason="by its curve"),
        "fail": lambda: Fail("never"),
        "unhandled": lambda: Unhandled("no task 'what'"),
    }
    error = raised[job.payload]()
    raise error


def perish(job: RunningJob) -> None:
    """End this process as the payload says, or return."""
    match job.payload:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "segfault":
            faulthandler.disable()
            os.kill(os.getpid(), signal.SIGSEGV)
        case _:
            pass


def look(job: RunningJob) -> None:
    """Note all that a job says of itself."""
    said = [job.id, job.queue, job.attempt, job.payload, job.raw, dict(job.headers), job.priority, job.job.payload]
    diary_of(job.headers["diary"]).note(*[repr(each).replace(" ", "") for each in said])
    assert not job.lost
    assert not job.stopping
    assert job.deadline > datetime.now(UTC)


def diary_of(path: str) -> Diary:
    return Diary(path)


def measure(job: RunningJob) -> None:
    """Note the length of a text."""
    diary_of(job.headers["diary"]).note(len(job.payload), job.payload.count("x"))


def busy(job: RunningJob) -> None:
    """Keep the interpreter busy for so many seconds of its own."""
    diary = diary_of(job.payload["diary"])
    diary.note("begin", job.attempt, os.getpid())
    end = time.monotonic() + job.payload["seconds"]
    while time.monotonic() < end:
        pass
    diary.note("lost" if job.lost else "end", job.attempt, os.getpid())


def stuck(job: RunningJob) -> None:
    """Never let go of the interpreter again: no other thread of this process runs."""
    diary_of(job.payload["diary"]).note("begin", job.attempt, os.getpid())
    re.match(r"(a+)+$", "a" * 100 + "b")


def with_a_program(job: RunningJob) -> None:
    """Start a program, and wait for it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as program:
        diary_of(job.payload["diary"]).note("begin", job.attempt, program.pid)


def effect(job: RunningJob) -> None:
    """Commit an effect with the job, as its payload says."""
    match job.payload:
        case "transaction":
            with job.transaction() as tx:
                tx.queue("effects").enqueue(job.payload)
        case "bound":
            with job.store.transaction() as tx:
                tx.queue("effects").enqueue(job.payload)
                assert tx.bind(job.handle).ack()
        case "rolled back":
            with suppress(LookupError), job.store.transaction() as tx:
                tx.queue("effects").enqueue("undone")
                assert tx.bind(job.handle).ack()
                raise LookupError
        case "raises" if job.attempt == 1:
            with job.transaction() as tx:
                tx.queue("effects").enqueue("undone")
                raise ValueError("in the middle")
        case "dies after":
            with job.transaction() as tx:
                tx.queue("effects").enqueue(job.payload)
            os._exit(3)
        case "dies within" if job.attempt == 1:
            with job.transaction() as tx:
                tx.queue("effects").enqueue("undone")
                os._exit(3)
        case "fails":
            assert job.handle.fail("by hand")
        case "extends":
            assert job.heartbeat(3_000)
        case _:
            with job.transaction() as tx:
                tx.queue("effects").enqueue(job.payload)


def slow_effect(job: RunningJob) -> None:
    """Keep a transaction of the job open for so many seconds."""
    with job.transaction() as tx:
        tx.queue("effects").enqueue(job.attempt)
        time.sleep(job.payload)


def await_loss(job: RunningJob) -> None:
    diary = diary_of(job.payload)
    diary.note("begin", job.attempt)
    wait_until(lambda: job.lost, WAIT, "the loss")
    diary.note("lost")


def await_stop(job: RunningJob) -> None:
    diary_of(job.payload).note("begin", job.attempt)
    wait_until(lambda: job.stopping, WAIT, "the stop")
    raise Retry(0, "to be gone on with")


def await_extension(job: RunningJob) -> None:
    first = job.deadline
    wait_until(lambda: job.deadline > first, WAIT, "the extension")


def signalled(job: RunningJob) -> None:
    """Be sent what a whole service is sent, and go on; and what is started here obeys signals as anything does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as program:
        program.terminate()
        diary_of(job.payload).note("ended", program.wait(WAIT))


def fork(job: RunningJob) -> None:
    """Leave a fork behind that outlives this process, but for being killed with it."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    os._exit(3)


def leave_a_thread(job: RunningJob) -> None:
    """Leave a thread behind that never ends."""
    threading.Thread(target=time.sleep, args=(600,)).start()


def nothing(job: RunningJob) -> None:
    pass


class Codec:
    """A codec of the application's."""

    name = "backwards"

    def encode(self, payload: object) -> bytes:
        return str(payload)[::-1].encode()

    def decode(self, data: bytes) -> object:
        return data.decode()[::-1]


class ProudCodec(Codec):
    """One that doesn't let itself be sent."""

    name = "proud"

    def __reduce__(self) -> Any:
        raise TypeError("not me")


def clock() -> datetime:
    """A clock that is ahead."""
    return datetime(2100, 1, 1, tzinfo=UTC)


def note_payload(job: RunningJob) -> None:
    diary_of(job.headers["diary"]).note(job.payload)


def ask_the_clock(job: RunningJob) -> None:
    diary_of(job.headers["diary"]).note(job.store.health().now.year)


def returns(job: RunningJob) -> Any:
    """Return what the payload says."""
    return {1, 2} if job.payload == "a set" else job.payload


tasks = alkstore.Tasks()


@tasks.task(queue="tasks", keep_result=60, name="double")
def double(number: int) -> int:
    """Return twice as much."""
    return 2 * number


@tasks.task(queue="tasks", name="hang", timeout=0.5, max_attempts=1)
def hang() -> None:
    """Never return, and hear nothing."""
    while True:
        pass
