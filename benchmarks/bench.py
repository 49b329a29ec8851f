"""What a question is asked with: the league, its systems that are there, places for them, and where figures go."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from benchmarks.children import Child, ChildError
from benchmarks.figures import Cell, Figures, Unit
from benchmarks.processor import server_seconds
from benchmarks.system import Durability, EngineName, System, offers
from tests.support.postgres_server import PostgresServer


@dataclass(frozen=True, slots=True)
class League:
    """Systems that are fit to be compared: one engine, at one durability."""

    name: str
    engine: EngineName
    durability: Durability
    title: str

    def admits(self, system: type[System]) -> bool:
        """Whether the system plays in it."""
        return system.engine == self.engine and self.durability in system.durabilities


LEAGUES: Final = (
    League("postgresql", "postgresql", "full", "PostgreSQL, fsync and synchronous_commit on"),
    League("sqlite-normal", "sqlite", "normal", "SQLite, WAL, synchronous = NORMAL"),
    League("sqlite-full", "sqlite", "full", "SQLite, WAL, synchronous = FULL"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How thoroughly to measure."""

    rounds: int
    seconds: float
    """About how long one system is measured in one round of a rate."""

    patience: float
    """A system that would take longer than so many seconds for one round is left out of the row, which is noted."""

    bulk: int
    """How many jobs the row has that enqueues a great many in one call."""

    pings: int
    idle: float
    hammer: float
    """Seconds."""

    memory: int
    """How many jobs the rows of memory are measured with."""

    growth: Mapping[str, int]
    """How many rows of a kind lie about in the rows of growth."""

    snapshot: int
    """How many jobs are done while a snapshot is held."""

    autovacuum: bool
    """Whether to wait for autovacuum once it is released; else VACUUM is called."""


FULL: Final = Settings(
    rounds=5,
    seconds=2.0,
    patience=60.0,
    bulk=100_000,
    pings=300,
    idle=20.0,
    hammer=10.0,
    memory=1_000_000,
    growth={
        "ready": 1_000_000,
        "future": 1_000_000,
        "other queues": 1_000_000,
        "leased": 300_000,
        "dead": 300_000,
        "expired": 300_000,
    },
    snapshot=200_000,
    autovacuum=True,
)
QUICK: Final = Settings(
    rounds=5,
    seconds=0.25,
    patience=3.0,
    bulk=20_000,
    pings=30,
    idle=3.0,
    hammer=2.0,
    memory=100_000,
    growth=dict.fromkeys(FULL.growth, 20_000),
    snapshot=10_000,
    autovacuum=False,
)


class Places:
    """Databases of their own for the systems: one each on the server, or a file each."""

    def __init__(self, league: League, server: PostgresServer | None, folder: Path | None = None) -> None:
        self._league = league
        self._server = server
        self._folder = folder

    @contextmanager
    def new(self) -> Generator[str]:
        """Give a URL or the path of a file that isn't there yet; what it names is gone afterwards."""
        if self._league.engine == "postgresql":
            assert self._server is not None  # noqa: S101 - no league of PostgreSQL without a server
            url = self._server.create_database()
            try:
                yield url
            finally:
                self._server.drop_database(url)
        else:
            folder = tempfile.mkdtemp(prefix="alkstore-bench-", dir=self._folder)
            try:
                yield str(Path(folder, "bench.db"))
            finally:
                shutil.rmtree(folder, ignore_errors=True)


class Question(Protocol):
    """One thing that is measured, in a module of its own."""

    def __call__(self, bench: Bench) -> None:
        """Measure it for the league's systems, and keep the figures."""
        ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What a question is asked with."""

    league: League
    settings: Settings
    systems: Mapping[type[System], Path]
    """The systems that are there, with the Python of each, in the order of the table."""

    figures: Figures
    server: PostgresServer | None
    places: Places

    def offering(self, *operations: str) -> list[type[System]]:
        """Return the systems that have all of the operations."""
        return [system for system in self.systems if all(offers(system, name) for name in operations)]

    @contextmanager
    def group(self, system: type[System], count: int = 1) -> Generator[list[Child]]:
        """Start so many processes of a system on one new place."""
        with ExitStack() as stack:
            place = stack.enter_context(self.places.new())
            group: list[Child] = []
            for number in range(count):
                child = stack.enter_context(Child(system, self.systems[system]))
                child.open(place, self.league.durability, create=number == 0)
                self.figures.versions.update(child.versions)
                group.append(child)
            yield group

    def in_turn(
        self,
        row: str,
        systems: Iterable[type[System]],
        prepare: Callable[[list[Child]], object],
        measure: Callable[[list[Child], object], Measured],
        *,
        unit: Unit,
        count: int = 1,
        rounds: int | None = None,
    ) -> None:
        """Measure the systems in alternating rounds (A B C A B C ...), and keep a cell for each.

        ``prepare`` is called once for each before the rounds, and what it returns goes to each ``measure``. A system that fails
        is out of the row, and its cell says why.
        """
        with ExitStack() as stack:
            running: dict[type[System], tuple[list[Child], object]] = {}
            found: dict[type[System], list[Measured]] = {}
            failures: dict[type[System], str] = {}
            for system in systems:
                try:
                    group = stack.enter_context(self.group(system, count))
                    running[system] = (group, prepare(group))
                except (ChildError, LeftOutError) as error:
                    failures[system] = str(error)
            for _ in range(self.settings.rounds if rounds is None else rounds):
                for system, (group, prepared) in list(running.items()):
                    before = self.server_spent()
                    try:
                        measured = measure(group, prepared)
                    except ChildError as error:
                        failures[system] = str(error)
                        del running[system]
                        continue
                    found.setdefault(system, []).append(measured.with_server(before, self.server_spent()))
        for system in self.systems:
            if system in failures:
                self.keep(row, system, unit, note=failures[system])
            elif system in found:
                self._keep_all(row, system, unit, found[system])

    def server_spent(self) -> float | None:
        """Return the processor's seconds of the league's server so far, where there is one and that can be known."""
        if self.league.engine != "postgresql" or self.server is None:
            return None
        return server_seconds(self.server.pid)

    def keep(self, row: str, system: type[System], unit: Unit, values: Iterable[float] = (), note: str = "") -> None:
        """Keep a cell."""
        self.figures.add(Cell(self.league.name, row, system.name, unit, tuple(values), note=note))

    def _keep_all(self, row: str, system: type[System], unit: Unit, measured: list[Measured]) -> None:
        notes = dict.fromkeys(one.note for one in measured if one.note)
        self.figures.add(
            Cell(
                self.league.name,
                row,
                system.name,
                unit,
                tuple(one.value for one in measured),
                tuple(one.client for one in measured if one.client is not None),
                tuple(one.server for one in measured if one.server is not None),
                "; ".join(notes),
            )
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """What one system did in one round."""

    value: float
    jobs: int = 0
    spent: float | None = None
    """The processor's seconds of the system's own processes."""

    note: str = ""
    server: float | None = None

    @property
    def client(self) -> float | None:
        """Microseconds of the processor per job."""
        return self.spent / self.jobs * 1e6 if self.spent is not None and self.jobs else None

    def with_server(self, before: float | None, after: float | None) -> Measured:
        """Add what the server has used meanwhile."""
        if before is None or after is None or not self.jobs:
            return self
        return Measured(self.value, self.jobs, self.spent, self.note, (after - before) / self.jobs * 1e6)


class LeftOutError(Exception):
    """Why a system is left out of a row, though it could do it."""


def say(text: str) -> None:
    """Tell whoever waits what is being done."""
    print(text, file=sys.stderr, flush=True)
