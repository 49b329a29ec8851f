"""The options that every command has, and the types of arguments."""

from __future__ import annotations

import functools
import re
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click

from alkstore.cli.output import Output
from alkstore.cli.place import Place
from alkstore.clock import LONGEST
from alkstore.shell import Exit

Result = Exit | None
"""What a command exits with; ``None`` is done."""

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LONGEST: Final = LONGEST.total_seconds()
_BYTES: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def common(function: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command ``--url``, ``--schema`` and ``--json``, and its function what they say, as its first arguments."""

    @click.option("--url", metavar="URL", help="The store; else ALKSTORE_URL, else [tool.alkstore] in pyproject.toml.")
    @click.option("--schema", metavar="NAME", help="The schema, where the engine has schemas (PostgreSQL: alkstore).")
    @click.option("--json", "as_json", is_flag=True, help="JSON: one document, or one a line where it streams.")
    @functools.wraps(function)
    def command(*, url: str | None, schema: str | None, as_json: bool, **given: Any) -> Result:
        return function(Place(url, schema), Output(as_json=as_json), **given)

    return command


def help_without_command(ctx: click.Context) -> None:
    """Show the help of a group that was given no command, as a wrong argument."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


def duration(text: str) -> float:
    """Return the seconds of ``90``, ``0.5``, ``30s``, ``5m``, ``2h`` or ``7d``."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of seconds, nor one with a unit, as in 30s, 5m, 2h or 7d")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > _LONGEST:
        raise click.BadParameter(f"{text!r} is more than 100 years")
    return seconds


def size(text: str) -> int:
    """Return the bytes of ``1000000``, ``512KiB``, ``64MiB`` or ``1GiB``."""
    found = re.fullmatch(r"([0-9]+)(KiB|MiB|GiB|)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of bytes, nor one with a unit, as in 512KiB, 64MiB or 1GiB")
    return int(found[1]) * _BYTES[found[2]]


@contextmanager
def ended_by_sigterm() -> Generator[None]:
    """Let SIGTERM unwind what is open, a terminal's other screen for one, rather than end the process on the spot."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interpreter gives them
        sys.exit(Exit.TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
