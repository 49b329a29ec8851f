"""One writer at a time: between BEGIN IMMEDIATE and COMMIT."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from alkstore.errors import EngineBusyError
from alkstore_sqlite import sql
from alkstore_sqlite.errors import is_busy, is_lasting, is_stale, without_frames
from alkstore_sqlite.executor import Units
from alkstore_sqlite.locking import Hold, Line, Mutex, poll

if TYPE_CHECKING:
    from alkstore_sqlite.pool import Pool

T = TypeVar("T")


class Turn(Hold):
    """What one who writes has: the process's mutex, a connection, and on that the database's write lock.

    Made before any of it is taken, by whoever will give it back, and what it has shows in it at each moment: so it is given
    back at once, wherever a signal's handler raises. Left to the collector it would keep every other writer out, of other
    processes too, for as long as the exception's traceback lives.
    """

    __slots__ = ("lent", "refusal")

    def __init__(self, mutex: Mutex) -> None:
        """Have nothing yet."""
        super().__init__(mutex.lock)
        self.lent: Final[list[Units]] = []
        """The connection, if there is one; a write lock on it shows there."""
        self.refusal: sqlite3.Error | None = None
        """Why the write lock was not to be had, when it was tried last."""

    def __del__(self) -> None:
        """Give back what nobody did: where handlers raised again and again. The connection closes by itself."""
        if self:  # else it has nothing, and may not even have been made to its end
            self.lent.clear()
            self.give()


class Writers:
    """The order of those who write: a mutex in the process, and a line between processes (see ``locking``).

    A writer takes the mutex before a connection, so that those who wait for their turn to write hold none up; and
    while he waits for another process, he gives the connection back between two tries, so that a fork needn't wait for him.

    Every write on a connection of the pool goes through ``begin`` and ends in ``commit`` or ``abandon``, and is committed
    by itself: threads that write at the same time don't share a commit. Each of these may be cut short by what a signal's
    handler raises. ``abandon`` is to be called then, from outside, and does whatever is left to do; so whoever has a turn calls
    it on the way of any exception, and once more behind that, as the handler may have raised in the first call.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self._mutex: Final = Mutex()
        self._line: Final = None if pool.location.path is None else Line(pool.location.path)
        self._spare: Final[deque[Turn]] = deque()
        """Used again: an end of one is a place where what a handler raises would be lost."""

    def turn(self) -> Turn:
        """Return what is to have a writer's turn, and has nothing yet; to go to ``dismiss`` when it has nothing any more."""
        try:
            return self._spare.pop()
        except IndexError:
            return Turn(self._mutex)

    def dismiss(self, turn: Turn) -> None:
        """Abandon what the turn may still have, and let another writer use it from now on."""
        if turn:
            self.abandon(turn)
        self._spare.append(turn)

    def begin(self, turn: Turn) -> Units:
        """Return a connection that has the write lock (T-6); raise ``EngineBusyError`` where it doesn't come in time."""
        pool = self._pool
        if not self._mutex.acquire(turn, pool.timeout):
            pool.check_open()
            raise EngineBusyError(f"{pool.where}: the write lock did not come free within {pool.timeout:g} s")
        return self._try_begin(turn) or self._stand_in_line(turn)

    def _try_begin(self, turn: Turn) -> Units | None:
        pool = self._pool
        units = pool.take()
        turn.lent.append(units)
        try:
            units.execute(sql.BEGIN)
        except sqlite3.Error as exc:
            self._part(turn, keep=not (is_lasting(exc) or is_stale(exc)))
            if is_busy(exc):
                turn.refusal = without_frames(exc)
                return None
            raise pool.failure(exc) from exc
        return units

    def _stand_in_line(self, turn: Turn) -> Units:
        pool = self._pool

        def attempt() -> Units | None:
            pool.check_open()
            pool.files.check()
            return self._try_begin(turn)

        units = self._in_line(attempt, time.monotonic() + pool.timeout)
        if units is None:
            raise self.locked_out() from turn.refusal
        return units

    def _in_line(self, attempt: Callable[[], T | None], deadline: float) -> T | None:
        return poll(attempt, deadline) if self._line is None else self._line.wait(attempt, deadline)

    def wait(self, attempt: Callable[[], T | None]) -> T | None:
        """Call ``attempt`` in this order until it gives something; ``None`` when the lock timeout is over.

        For a write lock on a connection that isn't the pool's: its own holder ends it.
        """
        deadline = time.monotonic() + self._pool.timeout
        hold = Hold(self._mutex.lock)
        try:
            got = self._in_line(attempt, deadline) if self._mutex.acquire(hold, self._pool.timeout) else None
            hold.give()
        finally:
            hold.give()  # also where a signal's handler raised in the line above
        return got

    def locked_out(self) -> EngineBusyError:
        """Return the error for a write lock that didn't come in time (Z-12)."""
        pool = self._pool
        return EngineBusyError(
            f"{pool.where}: another connection kept the database locked for more than {pool.timeout:g} s"
        )

    def commit(self, turn: Turn) -> None:
        """Commit what ``begin`` began; the connection is back and the lock free afterwards, unless a handler raised.

        Or unless the file is another by now: that is raised before anything is committed, and the turn is to be abandoned.
        """
        self._pool.files.check_whole()
        try:
            self._commit(turn.lent[0])
        except sqlite3.Error as exc:
            self.abandon(turn, keep=False)
            raise self._pool.failure(exc, at_commit=True) from exc
        self._pool.give_from(turn.lent)
        turn.give()

    def _commit(self, units: Units) -> None:
        try:
            units.execute(sql.COMMIT)
        except sqlite3.OperationalError as exc:
            # Refused for a lock, the transaction is whole and still open: it is committed again, not lost.
            if not is_busy(exc) or not units.connection.in_transaction:
                raise
            self._pool.patiently(lambda: units.execute(sql.COMMIT))

    def abandon(self, turn: Turn, *, keep: bool = True) -> None:
        """Roll back what ``begin`` began, and give back all that the turn still has; never raises a driver's error.

        Without ``keep`` the connection is given up, too: after a commit that failed, or an error that will come again.
        """
        self._part(turn, keep=keep)
        turn.give()

    def _part(self, turn: Turn, *, keep: bool) -> None:
        """Roll back, and give the connection back, or up."""
        if not turn.lent:
            return
        units = turn.lent[0]
        try:
            if units.connection.in_transaction:
                units.execute(sql.ROLLBACK)
        except sqlite3.Error:
            keep = False  # closing it rolls back, too; or it is closed
        if keep:
            self._pool.give_from(turn.lent)
        else:
            self._pool.discard(units)
            turn.lent.clear()

    def close(self, deadline: float) -> None:
        """Wait until whoever writes just now is done, and leave the line; nobody can begin after the pool is closed.

        Where that takes longer than to the deadline (monotonic), the line's file stays open until the process ends.
        """
        hold = Hold(self._mutex.lock)
        try:
            if self._mutex.acquire(hold, max(0.0, deadline - time.monotonic())) and self._line is not None:
                self._line.close()
            hold.give()
        finally:
            hold.give()

    def forget(self) -> None:
        """In a forked child: drop what belongs to the parent."""
        if self._line is not None:
            self._line.forget()
