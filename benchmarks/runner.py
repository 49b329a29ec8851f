"""Runs the questions in each league, and keeps what was found."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Generator, Mapping
from pathlib import Path

from benchmarks.bench import LEAGUES, Bench, League, Places, Settings, say
from benchmarks.environments import NotInstalledError, environment
from benchmarks.figures import Figures
from benchmarks.machine import machine
from benchmarks.questions import QUESTIONS
from benchmarks.system import System
from benchmarks.systems import systems
from tests.support.postgres_server import PostgresServer, private_server


def run(
    settings: Settings,
    environments: Path,
    *,
    leagues: Collection[str] = (),
    questions: Collection[str] = (),
    only: Collection[str] = (),
    places: Path | None = None,
) -> Figures:
    """Measure, and return the figures.

    ``leagues``, ``questions`` and ``only``, which names systems, restrict what is measured; empty: everything.
    ``environments`` is the folder for the peers' virtual environments, ``places`` that for SQLite's files. Raises
    ``PostgresUnavailable`` where a server is needed and can't be had.
    """
    chosen = [league for league in LEAGUES if not leagues or league.name in leagues]
    figures = Figures(settings=_told(settings), machine=dict(machine()))
    there = _there(chosen, environments, only, figures)
    for league in chosen:
        with _server(league) as server:
            if server is not None:
                figures.versions["server from"] = server.source
            playing = {system: python for system, python in there.items() if league.admits(system)}
            bench = Bench(league, settings, playing, figures, server, Places(league, server, places))
            for name, ask in QUESTIONS.items():
                if not questions or name in questions:
                    begun = time.monotonic()
                    ask(bench)
                    say(f"{league.name}: {name}: {time.monotonic() - begun:.0f} s")
    return figures


def _there(
    leagues: list[League], environments: Path, only: Collection[str], figures: Figures
) -> Mapping[type[System], Path]:
    """Return the systems that are there, with the Python of each; the others are noted."""
    found: dict[type[System], Path] = {}
    for system in systems():
        if (only and system.name not in only) or not any(league.admits(system) for league in leagues):
            continue
        try:
            found[system] = environment(system, environments)
        except NotInstalledError as error:
            figures.absent[system.name] = str(error)
    return found


@contextlib.contextmanager
def _server(league: League) -> Generator[PostgresServer | None]:
    if league.engine != "postgresql":
        yield None
        return
    with private_server() as server:
        yield server


def _told(settings: Settings) -> dict[str, str]:
    """Return the settings as text, by their names."""
    return {
        field.name: str(getattr(settings, field.name))
        for field in dataclasses.fields(settings)
        if field.name != "growth"
    }
