"""The figures as text: a table per league, the goals beside what was found, and what falls short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.bench import LEAGUES
from benchmarks.figures import Cell, Figures
from benchmarks.goals import Goal
from benchmarks.systems import RAW

Row = tuple[str, ...]

_HEAD: Row = ("", "system", "median", "least to most", "of raw", "us of client", "us of server", "")
_GOAL_HEAD: Row = ("", "goal", "found", "")


def number(value: float | None, unit: str = "") -> str:
    """Spell a figure with as many digits as mean something."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return f"{text}{unit}" if unit in {"/s", "x"} or not unit else f"{text} {unit}"


def league_rows(figures: Figures, league: str) -> list[Row]:
    """Return a league's table, a line per system of each row."""
    found: list[Row] = []
    for row in figures.rows(league):
        raw = figures.median(league, row, RAW)
        for index, system in enumerate(figures.systems(league, row)):
            cell = figures.cell(league, row, system)
            assert cell is not None  # noqa: S101 - its row has it
            found.append((row if index == 0 else "", system, *_figures(cell, raw), cell.note))
    return found


def _figures(cell: Cell, raw: float | None) -> Row:
    spread = cell.spread
    ratio = cell.median / raw if cell.median is not None and raw else None
    return (
        number(cell.median, cell.unit),
        f"{number(spread[0])} to {number(spread[1])}" if spread is not None and len(cell.values) > 1 else "",
        "" if ratio is None else f"{ratio:.2f}",
        number(_middle(cell.client)),
        number(_middle(cell.server)),
    )


def goal_rows(figures: Figures, goals: Iterable[Goal], league: str) -> list[Row]:
    """Return a league's goals with what was found; those whose row wasn't measured are left out."""
    found: list[Row] = []
    for goal in goals:
        value, reached = goal.judge(figures)
        if goal.league == league and reached is not None:
            found.append((goal.row, goal.text, number(value), "reached" if reached else "SHORT"))
    return found


def short(figures: Figures, goals: Iterable[Goal]) -> list[str]:
    """Return what falls short, a line each."""
    lines: list[str] = []
    for goal in goals:
        value, reached = goal.judge(figures)
        if reached is False:
            lines.append(f"{goal.league}: {goal.row}: {goal.text}, found {number(value)}")
    return lines


def text(figures: Figures, goals: list[Goal]) -> str:
    """Return everything, for a terminal."""
    parts = [_about(figures)]
    for title, head, rows in _tables(figures, goals):
        parts.append(f"\n{title}\n\n{_aligned([head, *rows])}")
    parts += ["", *_verdict(figures, goals)]
    return "\n".join(parts)


def markdown(figures: Figures, goals: list[Goal]) -> str:
    """Return everything, for RESULTS.md."""
    parts = [
        "# Results",
        "",
        "Written by `make bench`; README.md says what is measured and how.",
        "",
        _about(figures),
        "",
    ]
    for title, head, rows in _tables(figures, goals):
        parts += [f"## {title}", "", _piped(head), _piped(tuple("---" for _ in head)), *map(_piped, rows), ""]
    head, *lines = _verdict(figures, goals)
    parts += ["## What falls short", "", head, "", *(f"- {line.strip()}" for line in lines)]
    return "\n".join(parts) + "\n"


def _verdict(figures: Figures, goals: list[Goal]) -> list[str]:
    """Return how many goals are reached, and what falls short, a line each."""
    judged = [goal.judge(figures)[1] for goal in goals]
    head = f"{judged.count(True)} goals are reached, {judged.count(False)} fall short, {judged.count(None)} weren't measured."
    return [head, *(f"  {line}" for line in short(figures, goals))]


def _tables(figures: Figures, goals: list[Goal]) -> Iterable[tuple[str, Row, list[Row]]]:
    titles = {league.name: league.title for league in LEAGUES}
    for league in figures.leagues():
        title = titles.get(league, league)
        yield title, _HEAD, league_rows(figures, league)
        beside = goal_rows(figures, goals, league)
        if beside:
            yield f"{title}: the goals", _GOAL_HEAD, beside


def _about(figures: Figures) -> str:
    def pairs(known: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in known.items())

    lines = [
        f"Machine: {pairs(figures.machine)}.",
        f"Versions: {pairs(dict(sorted(figures.versions.items())))}.",
        f"Settings: {pairs(figures.settings)}.",
    ]
    lines += [f"Not measured: {name}: {reason}." for name, reason in figures.absent.items()]
    return "\n".join(lines)


def _aligned(rows: list[Row]) -> str:
    # The last column, for notes, may be as long as it is.
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    lines: list[str] = []
    for row in rows:
        cells = [
            value.ljust(width) if index < 2 else value.rjust(width)
            for index, (value, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def _piped(row: Row) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in row) + " |"


def _middle(values: tuple[float, ...]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
