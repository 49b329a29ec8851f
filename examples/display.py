"""A progress bar and a table for the terminal, in plain ANSI (for ``index_files.py``)."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self


def printable(path: str) -> str:
    """Return a path as text that any terminal takes: one with odd characters has them spelt as escapes."""
    text = path
    if not text.isprintable():
        text = text.encode("unicode_escape", "surrogatepass").decode("ascii")
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Bar:
    """A line that grows with the progress; where the output is no terminal, a plain line at every tenth."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._full, self._empty = "█░" if (sys.stdout.encoding or "").lower().startswith("utf") else "#."
        self._begun = time.monotonic()
        self._tenths = -1
        self._done = 0

    def show(self, done: int) -> None:
        """Show that so many are done."""
        self._done = done
        share = done / self._total if self._total else 1.0
        rate = done / max(time.monotonic() - self._begun, 0.001)
        figures = f"{share:4.0%}  {done}/{self._total}  {rate:.0f}/s"
        if self._live:
            width = min(60, shutil.get_terminal_size().columns - len(figures) - 4)
            filled = round(share * width)
            bar = self._full * filled + self._empty * (width - filled) if width > 0 else ""
            # Return to the line's start, write over what is there, and clear what sticks out.
            print(f"\r{bar}  {figures}\x1b[K", end="", flush=True)
        elif int(share * 10) > self._tenths:
            self._tenths = int(share * 10)
            print(figures, flush=True)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        print(f"\r{text}\x1b[K" if self._live else text, flush=True)
        if self._live:
            self.show(self._done)

    def __enter__(self) -> Self:
        """Hide the cursor, which would flicker."""
        if self._live:
            print("\x1b[?25l", end="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bar as it is, and bring the cursor back."""
        if self._live:
            print("\x1b[?25h", flush=True)


def table(row: Mapping[str, int]) -> None:
    """Print a table of one row."""
    widths = {heading: max(len(heading), len(str(value))) for heading, value in row.items()}
    print()
    print("  ".join(heading.rjust(width) for heading, width in widths.items()))
    print("  ".join("-" * width for width in widths.values()))
    print("  ".join(str(value).rjust(widths[heading]) for heading, value in row.items()))
    print()
