"""How many jobs a second are claimed and acked, one by one, by one thread?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.rates import rate

ROW = "claim_one + ack"


def ask(bench: Bench) -> None:
    """Measure it."""
    rate(bench, ROW, "claim_ack", filled=True)
