"""How long after a commit has an idle worker in another process the job?

From the moment when the enqueueing call has returned, which is after the commit, to the handler's beginning: workers with the
settings that they have by default, and a pause of random length before each job, so that nobody's polling is met on purpose.
"""

from __future__ import annotations

import random
import statistics
import time

from benchmarks.bench import Bench
from benchmarks.children import Child, ChildError
from benchmarks.system import System

P50 = "pick-up, p50"
P99 = "pick-up, p99"
_WARM = 5
_PAUSES = (0.005, 0.03)
_LONGEST = 30.0


def ask(bench: Bench) -> None:
    """Measure it, one system after another: while one waits, no other is to be woken."""
    for system in bench.offering("work", "enqueue"):
        try:
            with bench.group(system, 2) as (waiting, enqueueing):
                found = _times(bench, waiting, enqueueing)
        except ChildError as error:
            for name in (P50, P99):
                bench.keep(name, system, "ms", note=str(error))
            continue
        _keep(bench, system, found)


def _times(bench: Bench, waiting: Child, enqueueing: Child) -> list[float]:
    """Return the milliseconds that each took."""
    waiting.tell({"do": "work", "expected": None, "best": False, "tell": True})
    dice = random.Random(1)
    found: list[float] = []
    begun = time.monotonic()
    number = 0
    while len(found) < bench.settings.pings + _WARM:
        number += 1
        ended = enqueueing.run("enqueue", jobs=1, first=number)["ended"]
        while (heard := waiting.hear(_LONGEST))["heard"] != number:
            pass
        found.append((heard["at"] - ended) / 1e6)
        time.sleep(dice.uniform(*_PAUSES))
        if time.monotonic() - begun > bench.settings.patience * 2 and len(found) > _WARM * 3:
            break
    waiting.tell({"do": "stop"})
    waiting.answer()
    return found[_WARM:]


def _keep(bench: Bench, system: type[System], found: list[float]) -> None:
    found.sort()
    note = "" if len(found) == bench.settings.pings else f"{len(found)} jobs only: it is slow"
    # A handler may begin before the enqueueing call returns: by less than nothing, then.
    bench.keep(P50, system, "ms", [max(statistics.median(found), 0.0)], note)
    bench.keep(P99, system, "ms", [max(found[min(len(found) - 1, int(len(found) * 0.99))], 0.0)], note)
