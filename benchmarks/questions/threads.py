"""How many jobs a second are enqueued, each in a commit of its own, by eight threads of one process?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.rates import rate

THREADS = 8
ROW = f"enqueue, {THREADS} threads"


def ask(bench: Bench) -> None:
    """Measure it."""
    rate(bench, ROW, "enqueue_threads", multiple=THREADS, threads=THREADS)
