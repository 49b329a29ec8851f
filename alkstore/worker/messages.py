"""What a worker and its processes say to each other (see ``children``).

Only plain values come back, so that no exception or value of the application's can break the pipe.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

from alkstore.clock import Micros
from alkstore.records import JobRow
from alkstore.worker.handing import Recipe, Surroundings


class Brief(NamedTuple):
    """What a process is told first."""

    surroundings: Surroundings
    handlers: dict[str, bytes]
    recipe: Recipe


class Errand(NamedTuple):
    """A job to run; ``None`` in its place: end."""

    row: JobRow
    deadline: Micros | None
    deputies: list[bytes]
    """What stands in for the hooks, pickled."""


class Ready(NamedTuple):
    """The handlers are there."""


class Failed(NamedTuple):
    """They aren't, and why."""

    text: str
    trace: str


class Begun(NamedTuple):
    """The handler begins: what happens to the process from now on happens to the job."""

    token: int


class Inside(NamedTuple):
    """Whether a transaction of the job is open, in which its row is locked."""

    token: int
    inside: bool


class Settled(NamedTuple):
    """The job's own transaction has settled it."""

    token: int


class Told(NamedTuple):
    """What the process's store tells hooks; the worker's are told."""

    event: object
    """Of ``alkstore.hooks``: plain values."""


class Outcome(NamedTuple):
    """How the handler ended."""

    token: int
    settled: bool
    """By the handler itself, and that wasn't rolled back."""
    raised: str | None = None
    """``None``: it returned. Else ``Retry``, ``Fail``, ``Unhandled``, or ``other``."""
    text: str | None = None
    delay: Micros | None = None
    kind: str = ""
    """The class of what it raised."""
    trace: str = ""
    """Where it was raised: lines for the log."""
    result: bytes | None = None
    """What it returned, encoded, where the job keeps that."""


class News(NamedTuple):
    """What a process is told while its handler runs, on a pipe of its own: so small that it is written whole or not at all."""

    stopping: bool
    lost: bool
    token: int
    deadline: Micros

    def encode(self) -> bytes:
        """Return the ``NEWS_BYTES`` that it takes."""
        return _NEWS.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> News:
        """Return what was encoded."""
        return cls._make(_NEWS.unpack(data))


_NEWS: Final = struct.Struct("!??qq")
NEWS_BYTES: Final = _NEWS.size

Said: TypeAlias = Ready | Failed | Begun | Inside | Settled | Told | Outcome
"""What a process says."""

Say: TypeAlias = Callable[[Said], None]


def encode(message: object) -> bytes:
    """Return the message's bytes."""
    return pickle.dumps(message)


def decode(data: bytes) -> Any:
    """Return the message; only ever read from the pipe between a worker and a process that it has started."""
    return cast(object, pickle.loads(data))  # noqa: S301 - see above
