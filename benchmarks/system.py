"""What a system under measurement is to the benchmark: a class with one method per operation.

An adapter is such a class in a module of its own, in ``benchmarks/systems``. It is imported by the runner, which only
looks at what it declares, and by ``child``, in the system's own virtual environment, where it is used. So a module
imports what it adapts in ``open``, by `peer`. A method that an adapter doesn't define is one that the system doesn't
offer, and the table says so.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Literal

from benchmarks.tally import Tally

EngineName = Literal["postgresql", "sqlite"]
Durability = Literal["full", "normal"]

OPERATIONS = (
    "enqueue",
    "enqueue_many",
    "enqueue_threads",
    "claim_ack",
    "claim_batches",
    "work",
    "cycle",
    "claim_times",
    "lay",
)
"""What a system may offer; opening, closing and filling it must."""


def peer(module: str) -> Any:
    """Import a module that only the system's own environment has, and no type checker needs to know."""
    return importlib.import_module(module)


class System:
    """A system in a process of its own: opened once, then measured round after round, then closed."""

    name: ClassVar[str]
    engine: ClassVar[EngineName]
    durabilities: ClassVar[tuple[Durability, ...]] = ("full",)
    """SQLite's ``synchronous``, FULL or NORMAL: what the system can be set to, by documented means."""

    requirements: ClassVar[str | None] = None
    """The file in ``benchmarks/requirements`` that its environment is made from; without one it has the runner's."""

    python: ClassVar[tuple[int, int]] = (3, 11)
    """The oldest Python that will do."""

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Open the system on a database of its own, a URL or a file's path; ``create``: make its tables first."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what was opened."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Return what matters of what is installed, with versions."""
        return {}

    def fill(self, jobs: int) -> None:
        """Enqueue so many jobs by the quickest way; it isn't measured."""
        self.enqueue_many(jobs, 1_000)

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Enqueue so many jobs, each in a commit of its own, numbered from ``first``."""
        raise NotImplementedError

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Enqueue so many jobs, ``batch`` in each call and commit."""
        raise NotImplementedError

    def enqueue_threads(self, jobs: int, threads: int) -> None:
        """Enqueue so many jobs, each in a commit of its own, from so many threads of this process."""
        raise NotImplementedError

    def claim_ack(self, jobs: int) -> None:
        """Claim and ack so many jobs, one by one."""
        raise NotImplementedError

    def claim_batches(self, jobs: int, batch: int) -> None:
        """Claim and ack so many jobs, ``batch`` at a time."""
        raise NotImplementedError

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run the system's own worker, its handler telling ``tally``, until that is over.

        ``best``: with what settings serve a great many jobs best; else with those it has by default.
        """
        raise NotImplementedError

    def cycle(self) -> None:
        """Enqueue a job, and claim and ack one, which may be another process's."""
        raise NotImplementedError

    def claim_times(self, jobs: int) -> list[float]:
        """Claim so many jobs one by one, and ack them; the seconds that each claim took."""
        raise NotImplementedError

    def lay(self, kind: str, jobs: int) -> None:
        """Put so many jobs where a claim shouldn't have to look: see ``questions/growth.py`` for the kinds."""
        raise NotImplementedError


def offers(system: type[System], operation: str) -> bool:
    """Whether the system's adapter has the operation."""
    return getattr(system, operation) is not getattr(System, operation)
