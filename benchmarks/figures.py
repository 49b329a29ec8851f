"""What was measured: one `Cell` per league, row and system, and the lot of them with what a reader has to know."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Unit = Literal["/s", "ms", "%", "MB", "x", ""]

MORE_IS_BETTER: Final = frozenset({"/s"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One system's figures in one row of one league, a value per round.

    ``client`` and ``server`` are microseconds of the processor per job; empty where that wasn't or can't be measured.
    ``note`` says why there are no values, or what to know of them.
    """

    league: str
    row: str
    system: str
    unit: Unit
    values: tuple[float, ...] = ()
    client: tuple[float, ...] = ()
    server: tuple[float, ...] = ()
    note: str = ""

    @property
    def median(self) -> float | None:
        """The median of the rounds, if there were any."""
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the most."""
        return (min(self.values), max(self.values)) if self.values else None


@dataclass(slots=True)
class Figures:
    """All that a run has found."""

    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    machine: dict[str, Any] = field(default_factory=dict[str, Any])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    """The peers that aren't measured, with the reason."""

    cells: list[Cell] = field(default_factory=list[Cell])

    def add(self, cell: Cell) -> None:
        """Keep a cell; the last of the same place counts."""
        self.cells = [known for known in self.cells if not same_place(known, cell)]
        self.cells.append(cell)

    def cell(self, league: str, row: str, system: str) -> Cell | None:
        """Return a cell, if it was measured or tried."""
        for cell in self.cells:
            if (cell.league, cell.row, cell.system) == (league, row, system):
                return cell
        return None

    def median(self, league: str, row: str, system: str) -> float | None:
        """Return a cell's median, if there is one."""
        cell = self.cell(league, row, system)
        return None if cell is None else cell.median

    def leagues(self) -> list[str]:
        """Return the leagues, in the order in which they were measured."""
        return _unique(cell.league for cell in self.cells)

    def rows(self, league: str) -> list[str]:
        """Return a league's rows, in order."""
        return _unique(cell.row for cell in self.cells if cell.league == league)

    def systems(self, league: str, row: str) -> list[str]:
        """Return the systems with a cell in a row, in order."""
        return _unique(cell.system for cell in self.cells if (cell.league, cell.row) == (league, row))

    def to_json(self) -> dict[str, Any]:
        """Return all of it in JSON's types."""
        return {
            "settings": self.settings,
            "machine": self.machine,
            "versions": self.versions,
            "absent": self.absent,
            "cells": [{**asdict(cell), "median": cell.median} for cell in self.cells],
        }


def same_place(one: Cell, other: Cell) -> bool:
    """Whether two cells stand in the same place of the table."""
    return (one.league, one.row, one.system) == (other.league, other.row, other.system)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
