"""One system in a process of its own, told what to do by the runner in lines of JSON.

    python -m benchmarks.child benchmarks.systems.NAME CLASS

Each line in is an object whose ``do`` is one of

- ``open`` (``place``, ``durability``, ``create``), ``close``;
- ``run`` (``operation``, ``arguments``): do it, and tell the seconds and the processor's seconds that it took;
- ``work`` (``expected``, ``best``, ``tell``): run the system's worker, until so many jobs are handled, or nothing is left
  where ``expected`` isn't given, or ``stop`` comes; with ``tell``, a line for each job when its handler begins;
- ``time`` (``operation``, ``arguments``, ``seconds``): do it again and again, and tell how often, the longest, and errors;
- ``stop``, ``drained`` and ``spent`` are heard meanwhile too: end the work; know that another worker has found nothing left;
  tell the processor's seconds so far.

and each but ``stop`` and ``drained`` has one line in answer:
``{"ok": {...}}``, or ``{"error": "Type: text"}`` from which nothing follows.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from benchmarks.system import System
from benchmarks.tally import Tally

Message = dict[str, Any]

_ERRORS_TOLD = 5


def spent() -> float:
    """Return the processor's seconds of this process, and of the children that it has had."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def memory() -> Message:
    """Return the bytes resident now, and at most so far; nothing where the system doesn't tell."""
    names = {"VmHWM:": "peak", "VmRSS:": "resident"}
    found: Message = {}
    try:
        # Not ru_maxrss: that begins with what the parent had when it forked.
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:  # noqa: PTH123 - as light as can be
            for line in lines:
                name, *rest = line.split()
                if name in names:
                    found[names[name]] = int(rest[0]) * 1024
    except OSError:
        return {}
    return found


class Child:
    """Reads what it is told, does it with its system, and answers."""

    def __init__(self, system: System, out: TextIO) -> None:
        self._system = system
        self._out = out
        self._writing = threading.Lock()
        self._told: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._working: Tally | None = None
        self._stopped = False

    def listen(self, lines: TextIO) -> None:
        """Read the runner's lines to their end; what can't wait is done at once."""
        for line in lines:
            message: Message = json.loads(line)
            if message["do"] == "stop":
                self._stop()
            elif message["do"] == "drained":
                if self._working is not None:
                    self._working.drained.set()
            elif message["do"] == "spent":
                self._say({"ok": {"spent": spent()}})
            else:
                self._told.put(message)
        # The runner has ended, or was killed: a worker that waits for jobs would wait for ever.
        self._stop()
        self._told.put(None)

    def serve(self) -> int:
        """Do as told, one thing after another, until there is no more."""
        while (message := self._told.get()) is not None:
            try:
                done = self._do(message)
            except BaseException as exc:  # noqa: BLE001 - whatever happens in there, the runner is to hear of it
                traceback.print_exc()
                self._say({"error": f"{type(exc).__name__}: {exc}".strip()})
                return 1
            self._say({"ok": done})
            if message["do"] == "close":
                break
        return 0

    def _do(self, message: Message) -> Message:
        match message["do"]:
            case "open":
                self._system.open(message["place"], message["durability"], create=message["create"])
                return {"versions": self._system.versions(), **memory()}
            case "close":
                self._system.close()
                return {}
            case "run":
                return self._run(getattr(self._system, message["operation"]), message["arguments"])
            case "work":
                return self._work(message)
            case "time":
                return self._time(getattr(self._system, message["operation"]), message["arguments"], message["seconds"])
            case unknown:
                raise ValueError(f"unknown: {unknown!r}")

    def _run(self, operation: Callable[..., object], arguments: Message) -> Message:
        processor, begun = spent(), time.perf_counter()
        returned = operation(**arguments)
        ended = time.monotonic_ns()
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "spent": spent() - processor, "ended": ended, "returned": returned, **memory()}

    def _work(self, message: Message) -> Message:
        told = self._heard if message["tell"] else None
        tally = self._working = Tally(message["expected"], told)
        if self._stopped:
            tally.end()
        watcher = None
        if message["expected"] is None and told is None:
            watcher = threading.Thread(target=tally.watch)
            watcher.start()
        processor = spent()
        self._system.work(tally, best=message["best"])
        tally.end()
        if watcher is not None:
            watcher.join()
        self._working, self._stopped = None, False
        figures = {"handled": tally.handled, "first": tally.first, "last": tally.last}
        return {**figures, "spent": spent() - processor, **memory()}

    def _time(self, operation: Callable[..., object], arguments: Message, seconds: float) -> Message:
        processor, begun = spent(), time.perf_counter()
        done, longest, errors, failures = 0, 0.0, 0, list[str]()
        now = begun
        while now - begun < seconds:
            try:
                operation(**arguments)
                done += 1
            except Exception as exc:  # noqa: BLE001 - errors under pressure are what is counted here
                errors += 1
                if len(failures) < _ERRORS_TOLD:
                    failures.append(f"{type(exc).__name__}: {exc}")
            then, now = now, time.perf_counter()
            longest = max(longest, now - then)
        figures = {"done": done, "longest": longest, "errors": errors, "failures": failures}
        return {**figures, "seconds": now - begun, "spent": spent() - processor}

    def _stop(self) -> None:
        self._stopped = True
        if self._working is not None:
            self._working.end()

    def _heard(self, number: int, at: int) -> None:
        self._say({"heard": number, "at": at})

    def _say(self, answer: Message) -> None:
        with self._writing:
            self._out.write(json.dumps(answer) + "\n")
            self._out.flush()


def main() -> int:
    """Make the system that the arguments name, and serve."""
    # What a system prints must not come between the lines: it goes where errors go.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, name = sys.argv[1:]
    child = Child(getattr(importlib.import_module(module), name)(), out)
    threading.Thread(target=child.listen, args=(sys.stdin,), daemon=True).start()
    return child.serve()


if __name__ == "__main__":
    sys.exit(main())
