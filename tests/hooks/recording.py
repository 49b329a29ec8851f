"""A hook that keeps what it is told."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from alkstore import Hooks, RunningJob
from alkstore.hooks import Claimed, Died, Enqueued, Enqueueing, HookFailed, Lost, Retried, Succeeded, Swept

E = TypeVar("E")


class Recording(Hooks):
    """Keeps every record, in order."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self.headers = headers
        self.told: list[object] = []
        self.seen: list[tuple[str, object]] = []
        self.lock = threading.Lock()

    def blocks(self) -> list[tuple[str, object]]:
        """Return what was seen of handlers' blocks, in order."""
        with self.lock:
            return list(self.seen)

    def of(self, kind: type[E]) -> list[E]:
        """Return the records of a kind, in order."""
        with self.lock:
            return [event for event in self.told if isinstance(event, kind)]

    def kinds(self) -> list[str]:
        """Return what was told, by its names."""
        with self.lock:
            return [type(event).__name__ for event in self.told]

    def keep(self, event: object) -> None:
        with self.lock:
            self.told.append(event)

    def enqueueing(self, event: Enqueueing) -> dict[str, str] | None:
        self.keep(event)
        return self.headers

    def enqueued(self, event: Enqueued) -> None:
        self.keep(event)

    def claimed(self, event: Claimed) -> None:
        self.keep(event)

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:
        self.seen.append(("begins", job.id))
        try:
            yield
        except BaseException as exc:
            self.seen.append(("raises", type(exc)))
            raise
        else:
            self.seen.append(("returns", job.id))

    def succeeded(self, event: Succeeded) -> None:
        self.keep(event)

    def retried(self, event: Retried) -> None:
        self.keep(event)

    def died(self, event: Died) -> None:
        self.keep(event)

    def lost(self, event: Lost) -> None:
        self.keep(event)

    def swept(self, event: Swept) -> None:
        self.keep(event)

    def hook_failed(self, event: HookFailed) -> None:
        self.keep(event)
