"""Processes of their own that work on a place, and can be killed in the middle of it.

A child is told the harness and the place by their strings, and which of the tasks below to do. It says what it has come to, one
line of JSON at a time, and where a task waits, it waits for a line from its parent.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.compare import moment
from contract_tests.harness import Connection, Harness, load
from contract_tests.history import History

WAIT: Final = 120.0
"""Seconds after which a child is taken to hang, and killed. Generous: it judges liveness, not speed."""

RESULTS: Final = "results"
"""The queue whose jobs are the effects of the jobs that ``exactly_once`` does."""


class Child:
    """A process that does one task; a context manager, that kills it if it is still there at the end."""

    def __init__(self, harness: Harness, place: str, task: str, **options: object) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed on leaving
        # Its harness is looked for where this process has found it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, harness.reference, place, task, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._watchdog = threading.Timer(WAIT, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def hear(self) -> Any:
        """Wait for what the child says next; fail, with its traceback, if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise AssertionError(f"the child ended, or hung: {self.errors()}")
        return json.loads(line)

    def tell(self) -> None:
        """Let the child go on where it waits."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def run_for(self, seconds: float) -> None:
        """Let the child run for a while, or until it ends."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> None:
        """Kill it at once, as a crash of its machine would (SIGKILL); it gets no chance to tidy up."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> None:
        """Wait until the child has ended well."""
        self._process.communicate()
        assert self._process.returncode == 0, self.errors()

    def errors(self) -> str:
        """Return what the child wrote to its standard error."""
        self._process.wait()
        self._errors.seek(0)
        return self._errors.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._watchdog.cancel()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()


# --- in the child ------------------------------------------------------------------------------------------------------


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _wait() -> None:
    sys.stdin.readline()


def hold(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Claim a job, say which, and hold it until killed."""
    handle = queue.claim_one(options["worker"])
    assert handle is not None
    _say({"id": handle.id, "token": handle.token, "attempt": handle.attempt})
    _wait()


def hold_inside(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Claim a job, do its effect in its transaction, say so, and stay inside until told."""
    handle = queue.claim_one(options["worker"])
    assert handle is not None
    with handle.transaction() as tx:
        tx.queue(RESULTS).enqueue(handle.payload)
        _say({"id": handle.id, "attempt": handle.attempt})
        _wait()
    _say("committed")


def exactly_once(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Do job after job, each with its effect in its own transaction, until there is none."""
    _say("begun")
    while (handle := queue.claim_one(options["worker"])) is not None:
        with handle.transaction() as tx:
            tx.queue(RESULTS).enqueue(handle.payload)


def exactly_once_joined(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """The same on a connection of the application's own, that commits effect and ack together."""
    connection: Connection = options["connect"](auto_commit=False)
    joined = store.join(connection)
    _say("begun")
    while (handle := queue.claim_one(options["worker"])) is not None:
        joined.queue(RESULTS).enqueue(handle.payload)
        if joined.bind(handle).ack():
            connection.commit()
        else:
            connection.rollback()
    connection.close()


def notify(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Notify a channel of a row of numbers, and then of the end."""
    for number in range(options["count"]):
        store.notify(options["channel"], str(number))
    store.notify(options["channel"], options["end"])


def enqueue_on_demand(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Enqueue a job, numbered, at each word of the parent's, until it has no more."""
    _say("begun")
    for number, _ in enumerate(sys.stdin):
        queue.enqueue(number)


def await_results(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Wait for the results of some jobs, one after the other, and say what they were; nothing but a wake tells of them."""
    for job_id in options["ids"]:
        _say("waits")
        result = queue.wait_result(job_id, 100, poll_interval=1_000)
        _say(None if result is None else [result.outcome, result.value])


def drain(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Enqueue some jobs, and then claim and ack whatever there is, writing it all down; say how many were acked."""
    history = History(Path(options["history"]))
    _say("ready")
    _wait()
    done = 0
    for number in range(options["jobs"]):
        key = f"{options['worker']}-{number}"
        history.attempted(key)
        queue.enqueue(key)
        history.acknowledged(key)
        done += _ack_all(queue.claim_batch(options["worker"], 2), history)
    _say("enqueued")
    _wait()
    while handles := queue.claim_batch(options["worker"], 3):
        done += _ack_all(handles, history)
    _say(done)


def churn(store: Store, queue: Queue, options: dict[str, Any]) -> None:
    """Enqueue, claim, ack, retry and fail at random, for as long as it lives, writing it all down."""
    history = History(Path(options["history"]))
    dice = random.Random(options["seed"])
    _say("begun")
    number = 0
    while True:
        keys = [f"{options['seed']}-{number + n}" for n in range(dice.randint(1, 4))]
        number += len(keys)
        for key in keys:
            history.attempted(key)
        if len(keys) > 1:
            queue.enqueue_many(keys)
        else:
            queue.enqueue(keys[0])
        for key in keys:
            history.acknowledged(key)
        for handle in queue.claim_batch(options["worker"], dice.randint(1, 5)):
            history.claimed(handle.payload, handle.attempt)
            kind = dice.random()
            if kind < 0.5:
                _ack(handle, history)
            elif kind < 0.7:
                handle.retry("churn", delay=0)
            elif kind < 0.9:
                handle.fail("churn")


def _ack_all(handles: list[JobHandle], history: History) -> int:
    for handle in handles:
        history.claimed(handle.payload, handle.attempt)
    return sum(_ack(handle, history) for handle in handles)


def _ack(handle: JobHandle, history: History) -> int:
    history.acking(handle.payload)
    if not handle.ack():
        return 0
    history.done(handle.payload)
    return 1


TASKS: Final[dict[str, Callable[[Store, Queue, dict[str, Any]], None]]] = {
    "hold": hold,
    "hold_inside": hold_inside,
    "exactly_once": exactly_once,
    "exactly_once_joined": exactly_once_joined,
    "notify": notify,
    "await_results": await_results,
    "enqueue_on_demand": enqueue_on_demand,
    "drain": drain,
    "churn": churn,
}


def main(reference: str, place: str, task: str, text: str) -> None:
    """Do a task, with the clock standing still where the options say ``now``, in microseconds since 1970."""
    options: dict[str, Any] = json.loads(text)
    opening: dict[str, Any] = {}
    if options.get("now") is not None:
        standing = moment(options["now"])
        opening["clock"] = lambda: standing
    harness = load(reference)
    options["connect"] = partial(harness.connect, place)
    with harness.open(place, migrate=False, **opening) as store:
        TASKS[task](store, store.queue(options["queue"]), options)


if __name__ == "__main__":
    main(*sys.argv[1:])
