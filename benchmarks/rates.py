"""Rates: how many jobs a system gets through in a second, each round long enough to be timed."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.bench import Bench, LeftOutError, Measured
from benchmarks.children import Child

MOST: Final = 100_000
"""No round has more jobs than this, however fast a system is."""


def rate(
    bench: Bench,
    row: str,
    operation: str,
    *,
    multiple: int = 1,
    filled: bool = False,
    exactly: int | None = None,
    **arguments: Any,
) -> None:
    """Measure how many jobs a second the operation does, for all systems that offer it.

    How many jobs a round has is found by a first try for each system: as many as take about ``settings.seconds``, a
    multiple of ``multiple``; or ``exactly`` so many. ``filled``: so many are enqueued before each round.
    """

    def one(child: Child, jobs: int) -> Measured:
        if filled:
            child.run("fill", jobs=jobs)
        answer = child.run(operation, jobs=jobs, **arguments)
        return Measured(jobs / answer["seconds"], jobs, answer["spent"])

    def prepare(group: list[Child]) -> int:
        first = max(multiple, 100)
        one(group[0], first)  # connections, statements and caches are warm afterwards
        return settled(bench, one(group[0], first).value, multiple, exactly)

    def measure(group: list[Child], jobs: object) -> Measured:
        assert isinstance(jobs, int)  # noqa: S101 - what prepare returned
        return one(group[0], jobs)

    bench.in_turn(row, bench.offering(operation), prepare, measure, unit="/s")


def settled(bench: Bench, speed: float, multiple: int, exactly: int | None = None) -> int:
    """Return how many jobs a round is to have at such a speed."""
    if exactly is None:
        return max(1, round(min(speed * bench.settings.seconds, MOST) / multiple)) * multiple
    if exactly / speed > bench.settings.patience:
        raise LeftOutError(f"left out: at {speed:,.0f}/s a round of {exactly:,} takes too long")
    return exactly
