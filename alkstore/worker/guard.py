"""No worker runs in a process that only imports a program to find a handler in it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

MAIN: Final = "__main__"
MAIN_HERE: Final = "__mp_main__"
"""What a program's own module is called, in itself and in a process that imports it: there as by multiprocessing, for which
programs are guarded."""

_importing = False


@contextmanager
def importing() -> Generator[None]:
    """Return a block in which this process imports the program of the worker that has started it."""
    global _importing  # noqa: PLW0603 - a process has one
    _importing = True
    try:
        yield
    finally:
        _importing = False


def check_guarded() -> None:
    """Raise ``RuntimeError`` where a worker would be run by the import."""
    if _importing:
        raise RuntimeError(
            "a process of a worker's imports this program to find a handler, and the program would run a worker in there: "
            'what runs it must stand under if __name__ == "__main__"'
        )
