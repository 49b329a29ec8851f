"""How many jobs a second are enqueued, each in a commit of its own, by one thread?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.rates import rate

ROW = "enqueue"


def ask(bench: Bench) -> None:
    """Measure it."""
    rate(bench, ROW, "enqueue")
