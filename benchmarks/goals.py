"""The goals beside the figures: what alkstore is to reach, as ratios within one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.bench import Settings
from benchmarks.figures import MORE_IS_BETTER, Figures
from benchmarks.questions import (
    claim_ack,
    enqueue,
    enqueue_many,
    growth,
    hammer,
    idle,
    memory,
    pick_up,
    snapshot,
    threads,
    worker,
)
from benchmarks.systems import OURS, RAW

PG, NORMAL, FULL = "postgresql", "sqlite-normal", "sqlite-full"
Found = Callable[[Figures], float | None]


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to reach: a figure of the run, and the least or the most that it may be."""

    league: str
    row: str
    text: str
    found: Found
    least: float | None = None
    most: float | None = None

    def judge(self, figures: Figures) -> tuple[float | None, bool | None]:
        """Return the figure, and whether it is reached; ``None`` for what wasn't measured."""
        value = self.found(figures)
        if value is None:
            return None, None
        reached = (self.least is None or value >= self.least) and (self.most is None or value <= self.most)
        return value, reached


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a league, and the goals that may be set for it."""

    league: str
    row: str

    def least(self, of: str, factor: float) -> Goal:
        """Set at least so much of another system's figure."""
        return Goal(self.league, self.row, f">= {factor:g} of {of}", lambda f: self._ratio(f, of), least=factor)

    def ahead(self, factor: float = 1.0) -> Goal:
        """Set so many times the best peer's."""
        return Goal(self.league, self.row, f">= {factor:g}x the best peer", self._ahead, least=factor)

    def over(self, row: str, factor: float, league: str | None = None) -> Goal:
        """Set at least so much of our own figure in another row."""

        def found(figures: Figures) -> float | None:
            ours = figures.median(self.league, self.row, OURS)
            other = figures.median(league or self.league, row, OURS)
            return None if not ours or not other else ours / other

        return Goal(self.league, self.row, f'>= {factor:g}x our "{row}"', found, least=factor)

    def most(self, value: float, unit: str) -> Goal:
        """Set a most for our figure itself."""
        found: Found = lambda figures: figures.median(self.league, self.row, OURS)  # noqa: E731 - as the others read
        return Goal(self.league, self.row, f"<= {value:g}{unit}", found, most=value)

    def beyond_raw(self, extra: float) -> Goal:
        """Set the raw figure and so much, at most."""

        def found(figures: Figures) -> float | None:
            ours, raw = (figures.median(self.league, self.row, name) for name in (OURS, RAW))
            return None if ours is None or raw is None else ours - raw

        return Goal(self.league, self.row, f"<= raw + {extra:g} ms", found, most=extra)

    def share(self, of: str, factor: float) -> Goal:
        """Set at most so much of another system's figure, where less is better."""
        return Goal(self.league, self.row, f"<= {factor:g} of {of}", lambda f: self._ratio(f, of), most=factor)

    def _ratio(self, figures: Figures, of: str) -> float | None:
        ours, other = (figures.median(self.league, self.row, name) for name in (OURS, of))
        return None if ours is None or not other else ours / other

    def _ahead(self, figures: Figures) -> float | None:
        """Return how many times better than the best peer we are."""
        ours = figures.cell(self.league, self.row, OURS)
        best = best_peer(figures, self.league, self.row)
        if ours is None or not ours.median or best is None:
            return None
        return ours.median / best[1] if ours.unit in MORE_IS_BETTER else best[1] / ours.median


def best_peer(figures: Figures, league: str, row: str) -> tuple[str, float] | None:
    """Return the best peer of a row, and its median; ``None`` where no peer was measured."""
    cells = [figures.cell(league, row, name) for name in figures.systems(league, row) if name not in {OURS, RAW}]
    found = [(cell.system, cell.median, cell.unit) for cell in cells if cell is not None and cell.median is not None]
    if not found:
        return None
    pick = max if found[0][2] in MORE_IS_BETTER else min
    name, median, _ = pick(found, key=lambda entry: entry[1])
    return name, median


_SINGLE: Final = enqueue.ROW
_THOUSAND: Final = enqueue_many.row(1_000)
_WORKER: Final = worker.row(1)
_WORKERS: Final = worker.row(2)


def goals(settings: Settings) -> list[Goal]:
    """Return the goals of a run."""
    bulk = enqueue_many.row(settings.bulk)
    found: list[Goal] = [
        _Row(PG, _SINGLE).least(RAW, 0.8),
        _Row(PG, _SINGLE).ahead(),
        _Row(NORMAL, _SINGLE).least(RAW, 0.75),
        _Row(NORMAL, _SINGLE).least("honker", 2),
        _Row(FULL, _SINGLE).least(RAW, 0.9),
    ]
    for row in (_THOUSAND, bulk):
        found += [
            _Row(PG, row).least(RAW, 0.6),
            _Row(PG, row).ahead(2),
            _Row(NORMAL, row).least(RAW, 0.4),
            _Row(NORMAL, row).least("honker", 3),
            _Row(FULL, row).least(RAW, 0.4),
        ]
    found += [
        _Row(PG, threads.ROW).least(RAW, 0.8),
        _Row(FULL, threads.ROW).over(_SINGLE, 3),
        _Row(PG, claim_ack.ROW).least(RAW, 0.8),
        _Row(NORMAL, claim_ack.ROW).least(RAW, 0.7),
        _Row(NORMAL, claim_ack.ROW).least("honker", 3),
        _Row(FULL, claim_ack.ROW).least(RAW, 0.7),
        _Row(PG, _WORKER).ahead(2),
        _Row(PG, _WORKER).least(RAW, 0.5),
        _Row(NORMAL, _WORKER).least("honker", 2),
        _Row(NORMAL, _WORKER).least(RAW, 0.3),
        _Row(FULL, _WORKER).least(RAW, 0.3),
        _Row(PG, _WORKERS).over(_WORKER, 1.5),
        _Row(NORMAL, _WORKERS).over(_WORKER, 0.9),
        _Row(FULL, _WORKERS).over(_WORKER, 0.9),
        _Row(PG, pick_up.P50).beyond_raw(0.5),
        _Row(PG, pick_up.P99).ahead(),
        _Row(NORMAL, pick_up.P50).share("honker", 0.5),
        _Row(NORMAL, pick_up.P99).ahead(),
        _Row(FULL, pick_up.P99).ahead(),
    ]
    for league in (PG, NORMAL, FULL):
        found += [
            _Row(league, idle.ROW).most(0.5, " %"),
            _Row(league, hammer.ERRORS).most(0, ""),
            _Row(league, hammer.CYCLES).ahead(),
            *(_Row(league, row).most(100, " MB") for row in memory.rows(settings.memory)[:1]),
            *(_Row(league, row).most(10, " MB") for row in memory.rows(settings.memory)[1:]),
            *(_Row(league, growth.row(kind, jobs)).most(1.3, "x") for kind, jobs in settings.growth.items()),
        ]
        if league != PG:
            found.append(_Row(league, hammer.LONGEST).most(1_000, " ms"))
    held, released = snapshot.rows(settings.snapshot)
    return [*found, _Row(PG, held).most(2, "x"), _Row(PG, released).most(1.3, "x")]
