"""A program that works on the queue `q`, for tests that signal and kill it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Self

from tests.integrations.places import Place
from tests.worker.conftest import options_of

ROOT: Final = Path(__file__).resolve().parents[2]

PROGRAM: Final = """
import json, signal, sys, threading, time
import alkstore

url, options, worker_options, seconds, busy, signals = json.loads(sys.argv[1])


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()


with alkstore.open(url, **options) as store:
    worker = alkstore.Worker(store, **worker_options)

    @worker.handler("q")
    def handle(job):
        if job.payload == "short":
            return
        say("begin", job.payload, job.attempt)
        for turn in range(signals):
            while turn and not job.stopping:
                time.sleep(0.01)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not busy:
                time.sleep(min(0.01, max(0.0, end - time.monotonic())))
        say("lost" if job.lost else "end", job.payload, job.attempt)

    say("ready")
    summary = worker.run()
    say("stopped", summary.succeeded, summary.retried, summary.released, summary.lost)
"""


PROCESSES: Final = """
import json, sys
import alkstore
from tests.worker import handlers

url, options, worker_options, handler = json.loads(sys.argv[1])

with alkstore.open(url, **options) as store:
    worker = alkstore.Worker(store, {"q": getattr(handlers, handler)}, **worker_options)
    print("ready", flush=True)
    summary = worker.run()
    print("stopped", summary.succeeded, summary.retried, summary.released, summary.lost, flush=True)
"""


class WorkerProgram:
    """A process that works, and what it has said so far."""

    def __init__(
        self, place: Place, *, seconds: float, busy: bool = False, signals: int = 0, **worker_options: Any
    ) -> None:
        """``signals``: so often its first handler's thread is given a SIGTERM, and from the second on as soon as it stops."""
        self._start(PROGRAM, [place.url, options_of(place), worker_options, seconds, busy, signals])

    def _start(self, program: str, given: object, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(given)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            **options,
        )  # fmt: skip
        self.lines: list[list[str]] = []
        self.errors: list[str] = []
        self._news: SimpleQueue[list[str]] = SimpleQueue()
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._news.put(line.split())

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def _drain(self) -> Iterator[list[str]]:
        while True:
            try:
                yield self._news.get_nowait()
            except Empty:
                return

    def expect(self, word: str, seconds: float = 60) -> list[str]:
        """Wait until it says so, and return the line."""
        while True:
            line = self._news.get(timeout=seconds)
            self.lines.append(line)
            if line[0] == word:
                return line

    def ended(self, seconds: float = 60) -> int:
        """Wait for its end, and return its exit code."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(seconds)
        self.lines.extend(self._drain())
        return code

    def said(self, word: str) -> list[list[str]]:
        """Return what followed a word, each time it was said."""
        return [line[1:] for line in self.lines if line[0] == word]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.ended()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class ProcessesProgram(WorkerProgram):
    """One that runs one of the handlers in ``tests.worker.handlers`` in processes of its own, and leads a process group.

    Its pipes are those processes', too: ``ended`` waits for them all.
    """

    def __init__(self, place: Place, handler: str, *, processes: int = 1, **worker_options: Any) -> None:
        given = [place.url, options_of(place), {"processes": processes, **worker_options}, handler]
        self._start(PROCESSES, given, process_group=0)
