"""What the author of an engine fills in, so that the suite can be run on it.

A harness for an engine that is opened by ``alkstore.open`` takes about fifteen lines::

    class MyHarness(Harness):
        name = "mine"

        def new_place(self) -> str:
            return f"mine://localhost/{uuid4().hex}"

        def drop_place(self, place: str) -> None:
            my_driver.drop(place)

        def peek(self, place: str) -> list[Row]:
            with my_driver.connect(place) as connection:
                return [Row(...) for row in connection.query("every job, live or dead")]

and is named as ``--harness my_tests.harness:MyHarness``. The class is made without arguments, in every process that needs it:
in each worker of pytest-xdist, and in the child processes that some tests start. A child opens a place by its string, and
never calls ``start``.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Protocol, cast

import alkstore
from alkstore.protocols import Store

MISSING: Final = (
    "the contract suite needs an engine to judge: --harness some.module:Class (see contract_tests/harness.py)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One stored job as the back door sees it: what is in the tables, whatever the product would say of it."""

    id: int
    queue: str
    table: Literal["live", "dead"]
    """Live is pending or processing. An engine with one table says what the row's state comes to."""
    worker_id: str | None
    """Who has it claimed; ``None`` where nobody has, and for the dead."""
    attempts: int
    created_at: datetime
    """Aware, as every instant here."""
    run_at: datetime
    expires_at: datetime | None
    last_error: str | None
    codec: str
    payload: bytes


class Connection(Protocol):
    """What the suite does with an application's connection itself: what all drivers of Python have (PEP 249)."""

    def commit(self) -> None:
        """Commit what is open."""
        ...

    def rollback(self) -> None:
        """Roll back what is open."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Harness(ABC):
    """How the suite gets at an engine: subclass it, and name the subclass with ``--harness module:Class``."""

    name: ClassVar[str]
    """The engine's name, as it is to stand in the test ids and in the summary."""

    excuses: ClassVar[Mapping[str, str]] = {}
    """Clauses that the engine is known to break, each with the reason: ``{"T-6": "no locks yet, see #12"}``.

    The tests of an excused clause run, and may fail. The excuse is strict: once they all pass, the run fails until the
    excuse is taken away.
    """

    def start(self) -> None:
        """Prepare whatever the session needs, such as a server: called once, before anything else, and not in children."""

    def stop(self) -> None:
        """Take down what ``start`` has put up: called once, at the end."""

    @abstractmethod
    def new_place(self) -> str:
        """Return a fresh and empty place for one test: a URL, or another string that ``open`` understands in any process.

        Cheap: it is called for every test. Nothing needs to exist there yet, as opening creates the schema.
        """

    @abstractmethod
    def drop_place(self, place: str) -> None:
        """Remove a place and all that is in it; stores that a failed test left open there may be in the way."""

    def open(self, place: str, **options: Any) -> Store:
        """Open a store at the place, with the options of ``alkstore.open``, such as ``clock``, ``codecs`` and ``migrate``."""
        return cast(Store, alkstore.open(place, **options))

    def connect(self, place: str, *, auto_commit: bool) -> Connection:
        """Return a new connection to the place, of the driver's own, as an application would have one (T-3).

        In the driver's auto-commit mode, or in the mode in which it begins a transaction by itself and the application
        commits. Asked for only of engines that declare the capability ``join``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no connect, and its engine declares the capability 'join'"
        )

    def disturb(self, place: str) -> None:
        """Cut what the stores at the place hear each other by, as a failing network or a careless hand would (W-3).

        An engine of which nothing can be cut leaves this as it is.
        """

    @abstractmethod
    def peek(self, place: str) -> list[Row]:
        """Return every job in the place, live and dead, in any order, by none of the product's methods.

        As committed at the moment. A job that is in two tables is in the list twice.
        """

    @property
    def reference(self) -> str:
        """What ``load`` makes this harness of again, in another process: ``module:Class``."""
        return f"{type(self).__module__}:{type(self).__qualname__}"


class HarnessError(ValueError):
    """A reference names no harness; the text says why."""


def load(reference: str) -> Harness:
    """Make the harness that ``module:Class`` names; raise ``HarnessError`` where there is none."""
    module_name, colon, class_name = reference.partition(":")
    if not (module_name and colon and class_name):
        raise HarnessError(f"{reference!r} is not of the form some.module:Class")
    try:
        found: object = importlib.import_module(module_name)
    except ImportError as exc:
        raise HarnessError(f"{reference!r} can't be imported: {exc}") from exc
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise HarnessError(f"{reference!r}: {module_name} has no {class_name}")
        found = getattr(found, part)
    if not (isinstance(found, type) and issubclass(found, Harness)):
        raise HarnessError(f"{reference!r} is not a subclass of contract_tests.harness.Harness")
    if inspect.isabstract(found):
        raise HarnessError(f"{reference!r} lacks {', '.join(sorted(found.__abstractmethods__))}")
    if not isinstance(getattr(found, "name", None), str):
        raise HarnessError(f"{reference!r} has no name")
    return found()
