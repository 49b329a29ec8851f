"""What both command lines share, ``python -m alkstore`` and ``alkstore``; the standard library is enough for it."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from alkstore.errors import AlkstoreError, ValidationError
from alkstore.protocols import Store
from alkstore.records import Health
from alkstore.schema import spell


class Exit(IntEnum):
    """The exit codes, each with one meaning in every command."""

    DONE = 0
    """It is done, or as it should be."""

    FAILED = 1
    """The database didn't do it, what was named isn't there, or a check failed."""

    USAGE = 2
    """A wrong argument, or one that is missing; nothing was done."""

    INTERRUPTED = 130
    """Ended by Ctrl-C."""

    BROKEN_PIPE = 141
    """Whoever was reading the output has gone, as ``head`` does when it has enough."""

    TERMINATED = 143
    """Ended by SIGTERM."""


# What a terminal obeys, hides or turns around instead of showing it: control characters (C0, DEL, C1), format
# characters (bidi overrides, invisible ones), surrogates, line and paragraph separators, and what is no character.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"})


def printable(text: str) -> str:
    r"""Return a text as it may be shown on a terminal: whatever isn't plainly visible is spelt out, as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(_spelt(character) if unicodedata.category(character) in _UNSEEN else character for character in text)


def _spelt(character: str) -> str:
    # Not by the codec alone: it leaves what Latin-1 has as it is, and that is where C1 lies.
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def one_line(error: object) -> str:
    """Return an error's text on one line, fit for a terminal."""
    return printable(" ".join(str(error).split()))


def complain(error: object) -> None:
    """Say on one line of stderr what is wrong."""
    sys.stderr.write(f"alkstore: {one_line(error)}\n")
    sys.stderr.flush()


def exit_code(error: AlkstoreError) -> Exit:
    """Return what a command exits with after the error."""
    return Exit.USAGE if isinstance(error, ValidationError) else Exit.FAILED


def migrate(open_store: Callable[[], Store]) -> Health:
    """Open the store, which creates or upgrades the schema (S-2), and say how it is then."""
    with open_store() as store:
        return store.health()


def migrated(health: Health) -> str:
    """Return the sentence that both commands print."""
    return f"{health.engine}: the schema is at version {spell(health.schema_version)}"
