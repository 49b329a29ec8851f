"""Whether the database's names still stand for the files that SQLite has open (clauses Q-ENQ-1, S-5).

A file that is removed, or renamed and replaced by another, stays open to whoever has it open: SQLite goes on, commits to it, and
says that all is well. Whoever opens the name afterwards sees nothing of that. The same goes for the write-ahead log alone, where
somebody has taken the files beside the database for leftovers.

So the names are looked at, and nothing is opened or closed for it (see ``fork``): before each commit, so that what is committed was
in its place as it was; before what is read; and by the thread that hears, for those who wait. It costs a few
microseconds. What the name stands for is known by device and number, from the moment that the first connection was made.
"""

from __future__ import annotations

import os
from typing import Final, TypeAlias

from alkstore.errors import EngineUnavailableError

Identity: TypeAlias = tuple[int, int]

_stat: Final = os.stat


def identity(path: str) -> Identity | None:
    """Return which file has the name; ``None`` where none has."""
    try:
        found = _stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Files:
    """The files of one database; of one in memory there are none, and all is well."""

    __slots__ = ("_log", "_log_path", "_main", "_path", "_where")

    def __init__(self, path: str | None, where: str) -> None:
        """Take the absolute path without links; ``where`` names the place in messages."""
        self._path: Final = path or ""
        self._log_path: Final = self._path + "-wal"
        self._where: Final = where
        self._main: Identity | None = None
        self._log: Identity | None = None

    def note(self, before: Identity | None, *, first: bool) -> None:
        """Take what has the names for what was just opened and read; raise where that is not what was known.

        ``before`` is what had the database's name before it was opened: where that is another, nobody knows which of the two it
        was. ``first`` says that no other connection is open: the log may have been deleted since, as it is with the last one.
        """
        if not self._path:
            return
        found, log = identity(self._path), identity(self._log_path)
        if self._main is None and before in {None, found}:
            self._main = found
        if first and found == self._main:
            self._log = log
        if found is None or found != self._main or log is None or log != self._log:
            raise self.lost()

    def are_there(self) -> bool:
        """Say whether the database has its name."""
        return self._main is None or _is(self._path, self._main)

    def are_whole(self) -> bool:
        """Say whether its log has, too; to be asked by who has a connection, since one that is open keeps the log."""
        return self._main is None or (_is(self._path, self._main) and _is(self._log_path, self._log))

    def check(self) -> None:
        """Raise ``EngineUnavailableError`` where the database's name stands for another file by now, or for none."""
        if not self.are_there():
            raise self.lost()

    def check_whole(self) -> None:
        """Raise it where the log's does; see ``are_whole``."""
        if not self.are_whole():
            raise self.lost()

    def lost(self) -> EngineUnavailableError:
        """Return the error."""
        found = identity(self._path)
        if found is None:
            what = "the file was removed"
        elif found != self._main:
            what = "the file was replaced by another"
        else:
            what = "the file's write-ahead log (-wal) was removed or replaced"
        error = EngineUnavailableError(
            f"{self._where}: {what} under the open store, where whatever is written would be lost; open the store anew"
        )
        error.lasting = True
        return error


def _is(path: str, known: Identity | None) -> bool:
    try:
        found = _stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # by now this process may not look there, which says nothing of the file
        return True
    return (found.st_dev, found.st_ino) == known
