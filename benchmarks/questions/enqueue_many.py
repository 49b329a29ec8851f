"""How many jobs a second are enqueued, so many in each call and commit?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.rates import rate


def row(batch: int) -> str:
    """Return the row's name."""
    return f"enqueue_many, {batch:,}"


def ask(bench: Bench) -> None:
    """Measure it by a hundred, by a thousand, and by a great many."""
    for batch in (100, 1_000):
        rate(bench, row(batch), "enqueue_many", multiple=batch, batch=batch)
    bulk = bench.settings.bulk
    rate(bench, row(bulk), "enqueue_many", exactly=bulk, batch=bulk)
