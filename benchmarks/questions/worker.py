"""How many jobs a second does a system's own worker do, their handler doing nothing, in one process and in two?

Timed from the first job's handler to the last one's: how long a worker takes to start and to stop isn't in it. The worker of
alkstore has its default settings, those of its peers the best that were found; the raw one is a loop by the hundred.
"""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.bench import Bench, Measured
from benchmarks.children import Child, ChildError
from benchmarks.rates import settled

_GLANCE: Final = 0.002
_PATIENCE: Final = 300.0


def row(processes: int) -> str:
    """Return the row's name."""
    return "worker" if processes == 1 else f"worker, {processes} processes"


def ask(bench: Bench) -> None:
    """Measure it."""
    for processes in (1, 2):
        _workers(bench, processes)


def _workers(bench: Bench, processes: int) -> None:
    def prepare(group: list[Child]) -> int:
        speed = drained(group, 500).value
        # Slow starters are known only once they run: a second, longer try says how fast they are.
        speed = drained(group, settled(bench, speed, 100)).value
        return settled(bench, speed, 100)

    def measure(group: list[Child], jobs: object) -> Measured:
        assert isinstance(jobs, int)  # noqa: S101 - what prepare returned
        return drained(group, jobs)

    bench.in_turn(row(processes), bench.offering("work"), prepare, measure, unit="/s", count=processes)


def drained(group: list[Child], jobs: int) -> Measured:
    """Enqueue so many jobs, and have the workers do them."""
    group[0].run("fill", jobs=jobs)
    expected = jobs if len(group) == 1 else None
    for child in group:
        child.tell({"do": "work", "expected": expected, "best": True, "tell": False})
    answers = _answers(group)
    handled = sum(answer["handled"] for answer in answers)
    if handled < jobs:
        raise ChildError(f"its worker did {handled:,} of {jobs:,} jobs")
    first = min(answer["first"] for answer in answers if answer["handled"])
    last = max(answer["last"] for answer in answers)
    speed = handled / max(last - first, 1) * 1e9
    note = "did some jobs twice" if handled > jobs else ""
    return Measured(speed, jobs, sum(answer["spent"] for answer in answers), note)


def _answers(group: list[Child]) -> list[dict[str, Any]]:
    """Return what each answers; once one has found nothing left, those who never had a job needn't wait for one."""
    working = list(group)
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + _PATIENCE
    while working:
        ready = [child for child in working if child.has_answered()]
        if not ready and time.monotonic() < deadline:
            time.sleep(_GLANCE)
            continue
        for child in ready or working:
            found.append(child.answer(_GLANCE))
            working.remove(child)
        for child in working:
            child.tell({"do": "drained"})
    return found
