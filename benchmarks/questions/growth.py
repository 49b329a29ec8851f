"""What does a claim cost when a great many rows lie about that it shouldn't have to look at?

95th percentiles of ``claim_one`` with 1,000 ready jobs and many of a kind besides, over the same without: alternating rounds of
both, in two places. The kinds: ``ready``; ``future``, at a higher priority; ``other queues``; ``leased``, claimed by somebody, at
a higher priority; ``dead``; ``expired``, at a higher priority, and not yet swept.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.children import Child, ChildError
from benchmarks.system import System
from benchmarks.systems import OURS

READY = 1_000
_CLAIMS = 100
_PEERS = ("ready", "future")


def row(kind: str, jobs: int) -> str:
    """Return the row's name."""
    return f"claim with {jobs:,} {kind}"


def ask(bench: Bench) -> None:
    """Measure each kind; of the peers, those of which they have such."""
    for kind, jobs in bench.settings.growth.items():
        for system in bench.offering("lay", "claim_times"):
            if system.name == OURS or kind in _PEERS:
                _one(bench, system, kind, jobs)


def _one(bench: Bench, system: type[System], kind: str, jobs: int) -> None:
    name = row(kind, jobs)
    try:
        with ExitStack() as stack:
            plain, laden = (stack.enter_context(bench.group(system))[0] for _ in range(2))
            for child in (plain, laden):
                child.run("fill", jobs=READY)
            laden.run("lay", patience=900.0, kind=kind, jobs=jobs)
            for child in (plain, laden):
                late(child)
            pairs = [(late(plain), late(laden)) for _ in range(bench.settings.rounds)]
    except ChildError as error:
        bench.keep(name, system, "x", note="it has no such" if str(error) == f"ValueError: {kind}" else str(error))
        return
    usual = statistics.median(before for before, _ in pairs)
    slowed = statistics.median(after for _, after in pairs)
    note = f"{1_000 * usual:.2f} ms and {1_000 * slowed:.2f} ms"
    bench.keep(name, system, "x", [slowed / usual], note)


def late(child: Child) -> float:
    """Return the 95th percentile of some claims, and enqueue as many jobs as were done."""
    times = sorted(child.run("claim_times", jobs=_CLAIMS)["returned"])
    child.run("fill", jobs=_CLAIMS)
    return times[int(len(times) * 0.95)]
