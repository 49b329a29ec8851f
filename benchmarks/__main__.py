"""Measure alkstore, the limit and the peers, and print the table with the goals beside the figures.

python -m benchmarks [--quick] [--rounds 5] [--engine sqlite] [--only alkstore,raw] [--question worker,enqueue]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from benchmarks.bench import FULL, LEAGUES, QUICK
from benchmarks.figures import Figures
from benchmarks.goals import Goal, goals
from benchmarks.picture import svg
from benchmarks.questions import QUESTIONS
from benchmarks.runner import run
from benchmarks.systems import systems
from benchmarks.table import markdown, text
from tests.support.postgres_server import PostgresUnavailable

_ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Read the arguments, measure, and write what was found."""
    given = _parser().parse_args(arguments)
    settings = QUICK if given.quick else FULL
    if given.rounds is not None:
        settings = dataclasses.replace(settings, rounds=given.rounds)
    leagues = [league.name for league in LEAGUES if given.engine in {None, league.engine, league.name}]
    try:
        figures = run(
            settings,
            given.environments,
            leagues=leagues,
            questions=given.question,
            only=given.only,
            places=given.places,
        )
    except PostgresUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    found = goals(settings)
    print(text(figures, found))
    _write(given.out, figures, found)
    return 0


def _write(folder: Path, figures: Figures, found: list[Goal]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        "results.json": json.dumps(figures.to_json(), indent=1) + "\n",
        "results.svg": svg(figures),
        "RESULTS.md": markdown(figures, found),
    }
    for name, content in written.items():
        (folder / name).write_text(content, encoding="utf-8")
    print(f"\nWritten: {', '.join(str(folder / name) for name in written)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure alkstore beside its peers.")
    names = list(dict.fromkeys(system.name for system in systems()))
    engines = sorted({league.engine for league in LEAGUES} | {league.name for league in LEAGUES})
    parser.add_argument("--quick", action="store_true", help="within ten minutes, and rougher")
    parser.add_argument("--rounds", type=_positive, help="rounds of each rate, 5 by default")
    parser.add_argument("--engine", choices=engines, help="this engine alone, or this one of its durabilities")
    parser.add_argument("--only", type=_names(names), default=[], help=f"these systems alone: {', '.join(names)}")
    parser.add_argument(
        "--question", type=_names(list(QUESTIONS)), default=[], help=f"these questions alone: {', '.join(QUESTIONS)}"
    )
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "bench", help="the folder to write to")
    parser.add_argument("--places", type=Path, help="the folder for SQLite's files, on the disk to be measured")
    parser.add_argument(
        "--environments",
        type=Path,
        default=_ROOT / ".venv-bench",
        help="the folder for the peers' virtual environments",
    )
    return parser


def _positive(given: str) -> int:
    value = int(given)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


class _names:  # noqa: N801 - used as argparse uses int: a type that is called
    """A list with commas between, of known names."""

    def __init__(self, known: list[str]) -> None:
        self._known = known

    def __call__(self, given: str) -> list[str]:
        names = [name.strip() for name in given.split(",") if name.strip()]
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(self._known)}")
        return names


if __name__ == "__main__":
    sys.exit(main())
