"""How many jobs a second are claimed and acked, a hundred at a time, by one thread?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.rates import rate

BATCH = 100
ROW = f"claim_batch + ack_batch, {BATCH}"


def ask(bench: Bench) -> None:
    """Measure it."""
    rate(bench, ROW, "claim_batches", multiple=BATCH, filled=True, batch=BATCH)
