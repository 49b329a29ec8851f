"""Hearing of other processes' commits, and the notifications that lie in a table (clauses W-1 to W-4, Z-15).

**Bells**, FIFOs beside the database, are rung by whoever has committed (see ``bells``).

**The backstop.** Bells don't know of writers that don't know of bells (the application's own connections, an SQLite prompt),
and a ring can be lost. So every commit is looked for, too (see ``watch``), five times a second, whatever is rung
meanwhile. Where there are no FIFOs, it is all there is.

**Notifications** are rows, numbered without gaps in the order of the commits, since there is one writer at a time. They are
kept for a minute. A listener reads on from the last that it has seen; where the first that is left isn't the next, it was too
slow, and is told so.

The thread that hears runs while somebody waits, and for a few seconds longer. Its bell and its watch are its own: another
thread may be started while it ends.
"""

from __future__ import annotations

import json
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from alkstore.engine import Heard, Subscription
from alkstore.errors import EngineUnavailableError
from alkstore.helper import Register, start, take_first
from alkstore.monitor import Monitor
from alkstore.records import GAP, Notification
from alkstore.results import ANY_JOB
from alkstore_sqlite import sql
from alkstore_sqlite.bells import ANYTHING, LINE, Bell, can_hang, ring, spell
from alkstore_sqlite.executor import Units
from alkstore_sqlite.watch import Watch

if TYPE_CHECKING:
    from alkstore_sqlite.operations import Operations
    from alkstore_sqlite.pool import Pool

_LOG: Final = logging.getLogger("alkstore")

_LOOK: Final = 0.2
"""Seconds between two questions for the data version."""

_FEW: Final = 8
"""Up to so many waiters simply look themselves when something was committed."""

_LINGER: Final = 5.0
"""Seconds that the thread goes on once nobody waits: whoever waits again and again finds it there."""

_JOINED_WITHIN: Final = 1.0
"""Seconds that ``close`` waits for the thread to end."""

_LOOK_AROUND: Final = 1.0
"""Seconds that a listener sleeps at most: what a signal's handler raises may have kept another thread from telling this one,
and a signal that comes just before the interpreter waits is only handled afterwards."""

_PAGE: Final = 500
"""Notifications that a listener reads at a time."""


class Hub:
    """What is heard in one store, and who is told of it."""

    def __init__(self, pool: Pool, operations: Operations, look: float = _LOOK) -> None:
        """``look`` is how many seconds pass between two looks for commits, where bells are heard."""
        self._pool: Final = pool
        self._look_every: Final = look
        self._operations: Final = operations
        self._database: Final = pool.location.path
        self._begin()
        pool.heirs.append(self.inherit)

    def _begin(self) -> None:
        self._changed = Monitor()
        self._heard: Heard | None = None
        self._attending: Register[object] = Register()
        self._listeners: Register[TableSubscription] = Register()
        """Weakly: whoever drops his without a word is told of nothing any more, and keeps no thread running."""
        self._thread: threading.Thread | None = None
        self._started: threading.Thread | None = None
        """The one that was started last, which may be about to end."""
        self._bell: Bell | None = None
        self._hears = False
        self._closed = False
        self._deaf = False
        """No thread could be had, when one was wanted last."""
        self._lost = False
        """The database's name stands for another file, or for none."""

    # --- alkstore.engine.Notifying -------------------------------------------------------------------------------

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Tell the other processes, and this store's own listeners."""
        if notified:
            self._tell_listeners()
        if self._database is not None:
            self.step()
            ring(self._database, None if self._bell is None else self._bell.name, spell(rings, notified=notified))

    def attend(self, heard: Heard, who: object) -> None:
        """Hear of others' commits from now on."""
        with self._changed:
            self._heard = heard
            self._attending.add(who)
        self._start()

    def leave(self, who: object) -> None:
        """End what ``attend`` began."""
        with self._changed:
            self._attending.discard(who)
            self._changed.notify_all()

    def listen(self, channels: frozenset[str]) -> Subscription:
        """Return a subscription from now on."""
        subscription = TableSubscription(self, channels)
        with self._changed:
            self._listeners.add(subscription)
        try:
            self._start()
            subscription.start()
        except BaseException:
            self.forget(subscription)
            raise
        return subscription

    # --- for subscriptions ---------------------------------------------------------------------------------------

    def forget(self, subscription: TableSubscription) -> None:
        """Tell a subscription of nothing any more."""
        with self._changed:
            self._listeners.discard(subscription)
            self._changed.notify_all()

    def read(self, channels: str, after: int) -> tuple[int, int | None, list[tuple[int, str, str]]]:
        """Return the last number given, the first that is left, and a page of what came after ``after``."""
        return self._operations.read(_read, channels, after)

    def step(self) -> float | None:
        """Return for how many seconds to wait at most before a look; ``None``: whoever waits is told when to.

        Where there is no thread that would tell him, one is tried anew.
        """
        if self._database is None or self._thread is not None:
            return None
        with self._changed:
            return None if not self._wanted() or self._has_thread(self._database) else _LOOK

    @property
    def wakes_reason(self) -> str | None:
        """Why others' commits aren't heard of at once, and are looked for; ``None`` where they are."""
        if self._database is None:
            return None
        if self._deaf:
            return "no thread could be started to hear other processes' commits on"
        bell = self._bell
        if not can_hang() or (self._hears and bell is not None and bell.descriptor < 0):
            return "no FIFO can be had beside the database to hear other processes' commits by"
        return None

    def check(self) -> None:
        """Raise ``StoreClosedError`` once it is closed."""
        if self._closed:
            raise self._pool.closed_error()
        self._pool.check_open()

    # --- the thread ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Have the thread run, and wait until its bell hangs, or can't be hung."""
        if self._database is None:
            return  # nobody else can commit: the store's own wakes are all there are
        with self._changed:
            if self._has_thread(self._database):
                self._changed.wait_for(lambda: self._hears or self._closed or self._thread is None, _LINGER)

    def _has_thread(self, database: str) -> bool:
        """Start the thread where there is none, and say whether there is one; called with the lock held."""
        if self._thread is None and not self._closed:
            bell = Bell(database)
            thread = threading.Thread(target=self._work, args=(bell,), name="alkstore-hub", daemon=True)
            self._hears = False
            try:
                start(thread)
            except RuntimeError as exc:  # no more threads, or the interpreter is ending
                _LOG.log(
                    logging.DEBUG if self._deaf else logging.WARNING,
                    "%s: no thread to hear other processes' commits on, whoever waits polls: %s", self._pool.where, exc,
                )  # fmt: skip
                self._deaf = True
                return False
            self._thread = self._started = thread
            self._bell, self._deaf = bell, False
        return self._thread is not None

    def _work(self, bell: Bell) -> None:
        me = threading.current_thread()
        watch = Watch(self._pool)
        try:
            bell.hang()
            with self._changed:
                self._hears = True
                self._changed.notify_all()
            # The first look says that anything may have been committed: so nothing is lost that was before it.
            idle_since = next_look = time.monotonic()
            while self._goes_on(me, idle_since):
                now = time.monotonic()
                if self._wanted():
                    idle_since = now
                if now < next_look:
                    self._hear(self._listen_for(bell, next_look - now))
                else:  # by the time, and not by the silence: where it is always rung, the others are to be seen, too
                    next_look = now + self._look_every
                    bell.hang()
                    self._look(watch)
        finally:
            bell.take_down()
            watch.end()
            with self._changed:
                if self._thread is me:
                    self._thread = None
                    self._hears = False
                self._changed.notify_all()
            self._tell_listeners()  # whoever is left has another thread started

    def _look(self, watch: Watch) -> None:
        changed = watch.has_changed()
        loss = watch.loss()
        if loss is not None or self._lost:
            self._lose(loss)
        elif changed:
            self._stir_waiters(watch)
            self._tell_listeners()

    def _stir_waiters(self, watch: Watch) -> None:
        """Have those look who may find something.

        The commit may well be this store's own. So where many wait, one question for all of them comes before the looks
        of each: which queues have a job at all. It is asked after the change was seen, and so sees what was committed.
        """
        waiting, heard = len(self._attending), self._heard
        queues = watch.queues(waiting) if waiting > _FEW else None
        if queues is None:
            self._hear(ANYTHING)
        elif heard is not None:
            for queue in queues:
                heard(queue, 0)
            if self._bell is None or self._bell.descriptor < 0:
                heard(ANY_JOB, 0)  # a result, which isn't a job to wait for, could not be rung

    def _wanted(self) -> bool:
        return bool(self._attending or self._listeners)

    def _goes_on(self, me: threading.Thread, idle_since: float) -> bool:
        """Say whether to go on; decided with the lock held, so that whoever comes just now starts another thread."""
        with self._changed:
            if not self._closed and (self._wanted() or time.monotonic() < idle_since + _LINGER):
                return True
            if self._thread is me:
                self._thread = None
                self._hears = False
            return False

    def _listen_for(self, bell: Bell, seconds: float) -> bytes:
        if bell.descriptor < 0:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, seconds)
            return b""
        if hasattr(select, "poll"):
            look = select.poll()
            look.register(bell.descriptor, select.POLLIN)
            ready = look.poll(seconds * 1000)
        else:
            ready, _, _ = select.select([bell.descriptor], [], [], seconds)
        return bell.read() if ready else b""

    def _hear(self, rung: bytes) -> None:
        rings: dict[str | None, int] = {}
        notified = False
        for line in rung.split(b"\n"):
            count, _, queue = line.partition(b" ")
            if count == b"n":
                notified = True
            elif count.isdigit() and len(count) < LINE:  # else it is no ring: whoever may write here may write anything
                name = queue.decode("utf-8", "replace") or None
                rings[name] = rings.get(name, 0) + int(count)
        if notified:
            self._tell_listeners()
        heard = self._heard
        if heard is not None:
            for name, count in rings.items():
                heard(name, count)

    def _tell_listeners(self) -> None:
        for subscription in self._listeners.living():
            subscription.stir()

    def _lose(self, loss: EngineUnavailableError | None) -> None:
        """Have all look who wait, as long as the file isn't in its place, and once it is there again: they find it out."""
        if loss is not None and not self._lost:
            _LOG.warning("%s", loss)
        self._lost = loss is not None
        self._hear(ANYTHING)
        self._tell_listeners()

    # --- the end, and forks -------------------------------------------------------------------------------------

    def close(self) -> None:
        """End it: whoever waits for a notification is told."""
        with self._changed:
            self._closed = True
            bell = self._bell
            self._changed.notify_all()
        if bell is not None:
            bell.strike()
        self._tell_listeners()

    def join(self) -> None:
        """Wait until the thread has ended, for a bounded time; to be called when the pool is closed, too."""
        thread = self._started
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOINED_WITHIN)

    def inherit(self) -> None:
        """In a forked child: nobody waits here; the bell and the thread are the parent's."""
        listeners = self._listeners.living()
        if self._bell is not None:
            self._bell.forget()
        self._begin()
        for subscription in listeners:
            subscription.disown()


def _read(units: Units, channels: str, after: int) -> tuple[int, int | None, list[tuple[int, str, str]]]:
    rows = units.execute(sql.NOTIFIED, (after, channels, _PAGE)).fetchall()
    return rows[0][0], rows[0][1], [row[2:] for row in rows if row[2] is not None]


class TableSubscription(Subscription):
    """One listener, and how far it has read.

    One thread reads at a time, and takes what it finds; the lock is held for that, and never while somebody waits. How often
    the listener was stirred is counted, and up to which count it has been read: so no thread takes the news from another,
    and a read that fails leaves them to the next.
    """

    def __init__(self, hub: Hub, channels: frozenset[str]) -> None:
        self._hub = hub
        self._channels = json.dumps(sorted(channels), ensure_ascii=False)
        self._page: tuple[deque[Notification], int] = (deque(), 0)
        """What was read and isn't taken yet, and up to which number: one assignment changes both, so that a signal's handler
        which raises while it is read neither loses anything nor has it come twice."""
        self._changed = Monitor()
        self._reading = threading.Lock()
        self._stirs = 0
        self._seen = 0
        self._closed = False

    def start(self) -> None:
        """Begin behind the last notification of now."""
        last, _, _ = self._hub.read(self._channels, 2**62)
        self._page = (deque(), last)

    def get(self, timeout: float | None) -> Notification | None:
        """Return the next one."""
        until = None if timeout is None else time.monotonic() + timeout
        anew = True  # where nobody tells of anything, at each turn
        while not self._closed:
            with self._reading:
                if not self._has_some() and (anew or self._is_stirred()):
                    self._read()
            found = take_first(self._page[0])
            if found is not None:
                return found
            step = self._hub.step()
            anew = step is not None
            with self._changed:
                left = _LOOK_AROUND if until is None else min(until - time.monotonic(), _LOOK_AROUND)
                if left <= 0:
                    return None
                self._changed.wait_for(
                    lambda: self._has_some() or self._is_stirred() or self._closed,
                    left if step is None else min(left, step),
                )
        return None

    def _has_some(self) -> bool:
        return bool(self._page[0])

    def _is_stirred(self) -> bool:
        return self._seen != self._stirs

    def _read(self) -> None:
        stirs = self._stirs
        self._hub.check()
        self._read_on()
        self._seen = stirs
        if len(self._page[0]) > 1:
            with self._changed:
                self._changed.notify_all()  # there is something for the others, too

    def _read_on(self) -> None:
        """Turn the page; called with none left on it."""
        _, after = self._page
        last, first, rows = self._hub.read(self._channels, after)
        ready: deque[Notification] = deque()
        if after < last and (first is None or first > after + 1):
            ready.append(GAP)
            after = last if first is None else first - 1
        ready.extend(Notification(channel=channel, payload=payload) for _, channel, payload in rows)
        self._page = (ready, rows[-1][0] if len(rows) == _PAGE else max(after, last))

    def stir(self) -> None:
        """Have it look."""
        with self._changed:
            self._stirs += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End it."""
        self._closed = True
        self.stir()
        self._hub.forget(self)

    def disown(self) -> None:
        """In a forked child: it is the parent's."""
        self._closed = True
        self._changed = Monitor()
        self._reading = threading.Lock()
