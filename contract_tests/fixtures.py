"""The fixtures of the suite, loaded by the plugin."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from alkstore.capabilities import Capabilities
from alkstore.protocols import Queue, Store
from contract_tests.harness import MISSING, Connection, Harness, Row, load
from contract_tests.report import SKIPPED
from contract_tests.travel import Clock


class OpenStore(Protocol):
    """Opens a store at the test's place, and closes it after the test."""

    def __call__(self, **options: Any) -> Store:
        """Open with the options of ``alkstore.open``."""
        ...


class Connect(Protocol):
    """Opens a connection as an application would."""

    def __call__(self, *, auto_commit: bool = False) -> Connection:
        """Open one, in auto-commit mode or in the mode that asks for commits."""
        ...


@dataclass(frozen=True)
class ContractEngine:
    """A harness that was started, and what its engine declares."""

    harness: Harness
    capabilities: Capabilities


@pytest.fixture(scope="session")
def contract_engine(request: pytest.FixtureRequest) -> Iterator[ContractEngine]:
    """The engine under test, one after the other; the plugin fills in the parameters."""
    if not request.param:
        pytest.fail(MISSING, pytrace=False)
    harness = load(request.param)
    harness.start()
    try:
        place = harness.new_place()
        store = harness.open(place)
        capabilities = store.capabilities
        store.close()
        harness.drop_place(place)
        yield ContractEngine(harness, capabilities)
    finally:
        harness.stop()


@pytest.fixture
def harness(request: pytest.FixtureRequest, contract_engine: ContractEngine) -> Harness:
    """The engine's harness; skips a test whose clauses need what the engine doesn't declare."""
    mark = request.node.get_closest_marker("clause")
    if mark is not None:
        missing = [need for need in mark.kwargs["needs"] if not getattr(contract_engine.capabilities, need)]
        if missing:
            pytest.skip(f"{SKIPPED}{', '.join(missing)} (needed for {', '.join(mark.args)})")
    return contract_engine.harness


@pytest.fixture
def place(harness: Harness) -> Iterator[str]:
    """A fresh and empty place, dropped after the test."""
    fresh = harness.new_place()
    yield fresh
    harness.drop_place(fresh)


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until the test moves it."""
    return Clock()


@pytest.fixture
def open_store(harness: Harness, place: str) -> Iterator[OpenStore]:
    """Open further stores at the place; without ``clock=`` they go by the real time."""
    opened: list[Store] = []

    def open_another(**options: Any) -> Store:
        store = harness.open(place, **options)
        opened.append(store)
        return store

    yield open_another
    for store in reversed(opened):
        store.close()


@pytest.fixture
def store(open_store: OpenStore, clock: Clock) -> Store:
    """A store at the place, that goes by ``clock``."""
    return open_store(clock=clock)


@pytest.fixture
def connect(harness: Harness, place: str, store: Store) -> Iterator[Connect]:
    """Open connections of the application's own to the place of ``store``; they are closed after the test."""
    opened: list[Connection] = []

    def open_another(*, auto_commit: bool = False) -> Connection:
        opened.append(harness.connect(place, auto_commit=auto_commit))
        return opened[-1]

    yield open_another
    for connection in reversed(opened):
        connection.close()


@pytest.fixture
def queue_names() -> Callable[[], str]:
    """Gives a name at each call that the test had not had before."""
    numbers = itertools.count(1)
    return lambda: f"queue-{next(numbers)}"


@pytest.fixture
def queue_name(queue_names: Callable[[], str]) -> str:
    """The name of ``queue``."""
    return queue_names()


@pytest.fixture
def queue(store: Store, queue_name: str) -> Queue:
    """A queue of ``store``, with the default options."""
    return store.queue(queue_name)


@pytest.fixture
def worker() -> str:
    """A worker's name."""
    return "worker-1"


@pytest.fixture
def peek(harness: Harness, place: str) -> Callable[[], list[Row]]:
    """Looks at what is stored through the back door; the rows come in the order of their ids."""
    return lambda: sorted(harness.peek(place), key=lambda row: (row.id, row.table))
