"""The backstop: every commit of every connection is seen, whoever made it (clause W-4).

``PRAGMA data_version``, asked a few times a second on the same connection, changes with each commit of any other. (Watching the
log by inotify doesn't do: it tells of a commit before it can be seen.) The numbers of two connections say nothing about
each other, so that after a change of the connection anything may have been committed.

The connection is the watch's own, beside those of the pool, which may be all in use. It is held between two looks as an open
transaction's is: so a fork and ``close`` know of it.
"""

from __future__ import annotations

import time
from typing import Final

from alkstore.errors import AlkstoreError, EngineUnavailableError
from alkstore_sqlite import sql
from alkstore_sqlite.errors import DRIVER_ERRORS, is_busy
from alkstore_sqlite.executor import Units
from alkstore_sqlite.locking import Inside
from alkstore_sqlite.pool import Pool


class Watch:
    """What one thread sees of the database from outside; see ``pool.Held`` for the connection."""

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self.inside = Inside()
        self._units: Units | None = None
        self._version: int | None = None
        self._over = False
        self._refused: EngineUnavailableError | None = None
        """What the last attempt to open a connection ended with, if that lasts."""

    def loss(self) -> EngineUnavailableError | None:
        """Return the error that everybody meets from now on, if the database's name stands for another file, or its log's does.

        Without a connection only an attempt to open one tells of the log: with the last that is open, it is deleted rightly.
        """
        files = self._pool.files
        if self._units is None:
            return self._refused if files.are_there() else files.lost()
        return None if files.are_whole() else files.lost()

    def has_changed(self) -> bool:
        """Say whether anything may have been committed since it was asked last; the first time it may."""
        found = self._ask()
        before, self._version = self._version, found
        return before != found

    def queues(self, limit: int) -> list[str] | None:
        """Return the queues that have a job to wait for; ``None`` where they are more than the limit, or can't be had."""
        with self.inside:
            if self._units is None:
                return None
            try:
                rows = self._units.execute(sql.DUE_QUEUES, (limit + 1,)).fetchall()
            except DRIVER_ERRORS:
                return None  # the next look finds out whether it lasts
        return [row[0] for row in rows] if len(rows) <= limit else None

    def _ask(self) -> int | None:
        """Return the data version; ``None`` where it can't be had just now."""
        with self.inside:
            if self._over:
                return None
            self._refused = None
            try:
                if self._units is None:
                    self._units = self._pool.open_apart(self)
                row: tuple[int] = self._units.execute(sql.DATA_VERSION).fetchone()
            except DRIVER_ERRORS as exc:
                if not is_busy(exc):
                    self._part()
                return None
            except AlkstoreError as exc:
                if isinstance(exc, EngineUnavailableError) and exc.lasting:
                    self._refused = exc
                return None
            return row[0]

    def end(self) -> None:
        """Close the connection, for good."""
        with self.inside:
            self._over = True
            self._part()

    def _part(self) -> None:
        """Close the connection, if there is one; called by whoever is inside."""
        units, self._units, self._version = self._units, None, None
        if units is not None:
            self._pool.close_apart(self, units)

    # --- for the pool: see ``pool.Held`` ----------------------------------------------------------------------------

    def cut(self, deadline: float) -> None:
        """Close the connection, for the pool that is being closed."""
        if self.inside.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                self._over = True
                self._part()
            finally:
                self.inside.release()

    def disown(self) -> None:
        """In a forked child: the connection is the parent's, and so is the thread."""
        self._over = True
        self._units = None
        self.inside = Inside()

    def clear(self) -> bool:
        """In a forked child: it has no transaction open."""
        return True
