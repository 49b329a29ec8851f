"""What the adapters of asynchronous systems have in common: a loop of their own, for the calls of a synchronous benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from benchmarks.system import System
from benchmarks.tally import Tally

T = TypeVar("T")


class Asynchronous(System):
    """A system whose calls are coroutines: each operation is one coroutine, so that starting loops isn't measured."""

    def start_loop(self, factory: Any = None) -> None:
        """Make the loop; to be called first in ``open``."""
        self._runner = asyncio.Runner(loop_factory=factory)

    def end_loop(self) -> None:
        """End the loop; to be called last in ``close``."""
        self._runner.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._runner.run(coroutine)


async def over(tally: Tally) -> None:
    """Wait until the tally is over."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    tally.when_over(lambda: loop.call_soon_threadsafe(event.set))
    await event.wait()
