"""Alkstore on SQLite: ``durability="full"``, which is its default, and ``durability="relaxed"``, as docs/options.md has it."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.system import Durability
from benchmarks.systems.alkstore_common import Alkstore


class AlkstoreSqlite(Alkstore):
    """The library over a file."""

    engine = "sqlite"
    durabilities: ClassVar[tuple[Durability, ...]] = ("full", "normal")

    def url(self, place: str) -> str:
        """Return the file's URL."""
        return f"sqlite:///{place}"

    def options(self, durability: Durability) -> dict[str, Any]:
        """Return what SQLite's ``synchronous`` is set by."""
        return {"durability": "full" if durability == "full" else "relaxed"}
