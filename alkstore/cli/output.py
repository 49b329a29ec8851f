"""What is printed: JSON, or lines and tables in which nothing of the data is obeyed by the terminal or read as markup."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from alkstore.shell import printable

# What a browser would read as markup, where the document lands in a page. None of it occurs in JSON but inside of strings,
# and all that isn't printable ASCII is escaped already.
_ESCAPED: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})

_UNCUT: Final = 100_000
"""The width, in columns, of what is no terminal: nothing is cut there."""


def dumps(value: object) -> str:
    """Return JSON on one line, in ASCII; ``ValueError`` for what JSON doesn't have."""
    return json.dumps(value, allow_nan=False).translate(_ESCAPED)


class Output:
    """Where a command writes, as ``--json`` or as text."""

    def __init__(self, *, as_json: bool) -> None:
        """Look at what stdout is: on a terminal there are colours, and lines are cut to its width."""
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty()
        self.is_live = self.is_terminal and not as_json and os.environ.get("TERM", "dumb") != "dumb"
        self.console: Console = _Console(
            force_terminal=self.is_terminal,
            width=None if self.is_terminal else _UNCUT,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def document(self, value: Mapping[str, Any]) -> None:
        """Write one JSON document on a line of its own."""
        sys.stdout.write(dumps(value) + "\n")

    def say(self, *parts: str | Text, cut: bool = False) -> None:
        """Write a line; texts are shown escaped. ``cut``: to the terminal's width, where it is one."""
        line = Text.assemble(*(part if isinstance(part, Text) else shown(part) for part in parts))
        if not self.is_terminal:
            sys.stdout.write(line.plain + "\n")  # some ten times faster, for lists of any length
        elif cut:
            self.console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self.console.print(line, soft_wrap=True)

    def table(self, table: Table) -> None:
        """Write a table."""
        self.console.print(table)

    def flush(self) -> None:
        """Let whoever waits for it at the other end of a pipe have what was written."""
        sys.stdout.flush()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the error through: how a command ends is decided in one place."""
        raise  # noqa: PLE0704 - called while it is handled


def shown(text: str, style: str = "") -> Text:
    """Return text of any origin as a terminal may have it."""
    return Text(printable(text), style=style)


def padded(text: str, width: int, style: str = "") -> Text:
    """Return text of any origin in a column of so many cells, and the two blanks behind it."""
    found = shown(text, style)
    found.pad_right(max(0, width - found.cell_len) + 2)
    return found
