"""How much memory do a great many jobs take: enqueued in one call from a generator, and done by one worker?

Only alkstore is asked: what a peer takes says little without what it promises.
"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.children import ChildError
from benchmarks.systems import OURS

_WORK = {"do": "work", "best": True, "tell": False}


def rows(jobs: int) -> tuple[str, str]:
    """Return the rows' names."""
    return f"memory, enqueue_many of {jobs:,}", f"memory, worker after {jobs:,}"


def ask(bench: Bench) -> None:
    """Measure it."""
    jobs = bench.settings.memory
    enqueueing, working = rows(jobs)
    for system in bench.offering("work", "enqueue_many"):
        if system.name != OURS:
            continue
        try:
            with bench.group(system, 2) as (child, other):
                start = child.run("enqueue_many", jobs=100, batch=100)["resident"]
                peak = child.run("enqueue_many", patience=900.0, jobs=jobs, batch=jobs)["peak"]
                # After the first tenth it has all that it needs; whatever the others add is growth.
                early = other.ask({**_WORK, "expected": jobs // 10}, 900.0)["resident"]
                late = other.ask({**_WORK, "expected": None}, 900.0)["resident"]
        except ChildError as error:
            bench.keep(enqueueing, system, "MB", note=str(error))
            continue
        bench.keep(enqueueing, system, "MB", [(peak - start) / 1e6], "peak above start")
        bench.keep(working, system, "MB", [(late - early) / 1e6], "growth after the first tenth")
