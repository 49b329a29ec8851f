"""One writer at a time: between BEGIN IMMEDIATE and COMMIT."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from alkstore.errors import EngineBusyError
from alkstore_sqlite import sql
from alkstore_sqlite.errors import is_busy, is_lasting, is_stale
from alkstore_sqlite.executor import Units
from alkstore_sqlite.locking import Line, Mutex, poll

if TYPE_CHECKING:
    from alkstore_sqlite.pool import Pool

T = TypeVar("T")


class Writers:
    """The order of those who write: a mutex in the process, and a line between processes (see ``locking``).

    A writer takes the mutex before a connection, so that those who wait for their turn to write hold none up; and
    while he waits for another process, he gives the connection back between two tries, so that a fork needn't wait for him.

    Every write on a connection of the pool goes through ``begin`` and ends in ``commit`` or ``abandon``, and is committed
    by itself: threads that write at the same time don't share a commit.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self._mutex: Final = Mutex()
        self._line: Final = None if pool.location.path is None else Line(pool.location.path)
        self._refusal: sqlite3.Error | None = None

    def begin(self) -> Units:
        """Return a connection that has the write lock (T-6); raise ``EngineBusyError`` where it doesn't come in time."""
        pool = self._pool
        hold = self._mutex.acquire(pool.timeout)
        if hold is None:
            pool.check_open()
            raise EngineBusyError(f"{pool.where}: the write lock did not come free within {pool.timeout:g} s")
        try:
            units = self._try_begin() or self._stand_in_line()
            units.write_hold = hold
        except BaseException:
            self._mutex.release(hold)
            raise
        return units

    def _try_begin(self) -> Units | None:
        pool = self._pool
        units = pool.take()
        try:
            units.execute(sql.BEGIN)
        except sqlite3.Error as exc:
            if is_lasting(exc) or is_stale(exc):
                pool.discard(units)
            else:
                pool.give(units)
            if is_busy(exc):
                self._refusal = exc
                return None
            raise pool.failure(exc) from exc
        except BaseException:
            self._undo(units)
            raise
        return units

    def _stand_in_line(self) -> Units:
        pool = self._pool

        def attempt() -> Units | None:
            pool.check_open()
            return self._try_begin()

        try:
            units = self._in_line(attempt, time.monotonic() + pool.timeout)
            if units is None:
                raise self.locked_out() from self._refusal
            return units
        finally:
            self._refusal = None  # nor in a variable here: it has the frames of those who called, and would be a circle

    def _in_line(self, attempt: Callable[[], T | None], deadline: float) -> T | None:
        return poll(attempt, deadline) if self._line is None else self._line.wait(attempt, deadline)

    def wait(self, attempt: Callable[[], T | None]) -> T | None:
        """Call ``attempt`` in this order until it gives something; ``None`` when the lock timeout is over.

        For a write lock on a connection that isn't the pool's: its own holder ends it.
        """
        deadline = time.monotonic() + self._pool.timeout
        hold = self._mutex.acquire(self._pool.timeout)
        if hold is None:
            return None
        try:
            return self._in_line(attempt, deadline)
        finally:
            self._mutex.release(hold)

    def locked_out(self) -> EngineBusyError:
        """Return the error for a write lock that didn't come in time (Z-12)."""
        pool = self._pool
        return EngineBusyError(
            f"{pool.where}: another connection kept the database locked for more than {pool.timeout:g} s"
        )

    def commit(self, units: Units) -> None:
        """Commit what ``begin`` began; whatever happens, the connection is back and the lock free afterwards."""
        try:
            self._commit(units)
        except sqlite3.Error as exc:
            self.abandon(units, keep=False)
            raise self._pool.failure(exc, at_commit=True) from exc
        except BaseException:
            self.abandon(units)
            raise
        self._end(units, self._pool.give)

    def _end(self, units: Units, part: Callable[[Units], None]) -> None:
        """Give the connection back, or up, and then the lock."""
        hold, units.write_hold = units.write_hold, None
        try:
            part(units)
        finally:
            if hold is not None:
                self._mutex.release(hold)

    def _commit(self, units: Units) -> None:
        try:
            units.execute(sql.COMMIT)
        except sqlite3.OperationalError as exc:
            # Refused for a lock, the transaction is whole and still open: it is committed again, not lost.
            if not is_busy(exc) or not units.connection.in_transaction:
                raise
            self._pool.patiently(lambda: units.execute(sql.COMMIT))

    def abandon(self, units: Units, *, keep: bool = True) -> None:
        """Roll back what ``begin`` began; never raises a driver's error.

        Without ``keep`` the connection is given up, too: after a commit that failed, or an error that will come again.
        """
        self._end(units, lambda undone: self._undo(undone, keep=keep))

    def _undo(self, units: Units, *, keep: bool = True) -> None:
        if units.connection.in_transaction:
            try:
                units.execute(sql.ROLLBACK)
            except sqlite3.Error:
                keep = False  # closing it rolls back, too
        if keep:
            self._pool.give(units)
        else:
            self._pool.discard(units)

    def close(self, deadline: float) -> None:
        """Wait until whoever writes just now is done, and leave the line; nobody can begin after the pool is closed.

        Where that takes longer than to the deadline (monotonic), the line's file stays open until the process ends.
        """
        hold = self._mutex.acquire(max(0.0, deadline - time.monotonic()))
        if hold is not None:
            if self._line is not None:
                self._line.close()
            self._mutex.release(hold)

    def forget(self) -> None:
        """In a forked child: drop what belongs to the parent."""
        if self._line is not None:
            self._line.forget()
