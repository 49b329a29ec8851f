"""The front's store, and how one is opened (clauses S-1 to S-4, S-7, T-5, Q-8)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast, get_args

from alkstore import opening, protocols
from alkstore.capabilities import Capabilities
from alkstore.clock import Duration, Micros, duration, reading, to_datetime
from alkstore.codec import Codec, Codecs
from alkstore.engine import Durability, Engine, EngineOptions, Executor, Joining, Notifying
from alkstore.errors import NotSupportedError, StoreClosedError, ValidationError, shown
from alkstore.forking import survive
from alkstore.frames import Root
from alkstore.hooks import Hooks
from alkstore.joining import Joined, Wake
from alkstore.limits import PAYLOAD_BYTES, RESULT_BYTES
from alkstore.listening import Listener, check_notification
from alkstore.names import check_name
from alkstore.options import QueueFields, QueueOptions, check_int
from alkstore.queue import Queue, find_job
from alkstore.records import Health, Job, Result
from alkstore.results import find_result
from alkstore.session import AutoSession
from alkstore.telling import Telling, telling
from alkstore.transaction import Transaction
from alkstore.wakes import Wakes

_PAYLOAD_LIMIT_MAX: Final = (
    512 * 1024 * 1024
)  # half of what one value may have, on PostgreSQL and in SQLite's default build


class Store(protocols.Store):
    """An open store over an engine. ``alkstore.open`` makes one."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], datetime] | None,
        codecs: Codecs,
        max_payload: int,
        max_result: int = RESULT_BYTES,
        reopen: Callable[[str], Engine] | None = None,
        hooks: Telling | None = None,
    ) -> None:
        """Work over an engine; ``reopen`` opens another on a URL of the same place, with the same options."""
        self._engine = engine
        self._reopen = reopen
        self._executor = engine.executor()
        self._clock = clock
        self._closed = False
        self._begin_anew()
        self._local = threading.local()
        self.codecs = codecs
        """The codecs that the store knows."""
        self.max_payload = max_payload
        """The limit of an encoded payload, in bytes."""
        self.max_result = max_result
        """The limit of an encoded result, in bytes."""
        self.hooks = hooks
        """What tells the hooks; ``None`` where there are none."""
        self.wakes = Wakes(engine)
        """What wakes whom."""
        self.auto_session = AutoSession(self)
        """Where operations run each by itself."""
        survive(self, Store._begin_anew)

    def _begin_anew(self) -> None:
        """When it is made, and in a fork's child: a close that has only begun is the parent's."""
        self._closing = threading.Lock()

    def __repr__(self) -> str:
        return f"<Store on {self._engine.name}{', closed' if self._closed else ''}>"

    # --- what the front's other parts ask ------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine underneath."""
        return self._engine

    @property
    def reopen(self) -> Callable[[str], Engine] | None:
        """What opens another engine on a URL of the same place."""
        return self._reopen

    @property
    def clock(self) -> Callable[[], datetime] | None:
        """The store's ``clock=``."""
        return self._clock

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` once the store is closed (S-3)."""
        if self._closed:
            raise StoreClosedError("the store is closed")

    def check_notifies(self) -> None:
        """Raise ``NotSupportedError`` where the engine doesn't declare the capability ``notify``."""
        if not self.capabilities.notify:
            raise NotSupportedError("this engine does not declare the capability 'notify'")

    def now(self) -> Micros | None:
        """Return the reading of ``clock=``, or ``None`` where the engine's own clock rules."""
        return None if self._clock is None else reading(self._clock)

    def auto_executor(self) -> Executor:
        """Return the operations, each in a transaction of its own."""
        return self._executor

    def open_transaction(self) -> Root | None:
        """Return the transaction that this thread has open, of the store's own or joined, if any (T-5)."""
        current = self._registered()
        # A child of a fork gets a copy of the parent's: it is the parent's, and refuses use, and isn't in the way here.
        # One that was ended from another thread is out of the way too.
        if current is None or not current.of_this_thread or current.over or not current.in_transaction:
            return None
        return current

    def set_open_transaction(self, transaction: Root | None) -> Root | None:
        """Remember the transaction that this thread has open, and return what was remembered before.

        Weakly: whose it is has it, and one that nobody has any more is no longer open.
        """
        before = self._registered()
        self._local.transaction = None if transaction is None else weakref.ref(transaction)
        return before

    def forget_transaction(self, transaction: Root, before: Root | None) -> None:
        """Remember what was remembered before the transaction, unless it is another's turn already."""
        if self._registered() in (None, transaction):
            self.set_open_transaction(before)

    def _registered(self) -> Root | None:
        known: weakref.ref[Root] | None = getattr(self._local, "transaction", None)
        return None if known is None else known()

    def apart(self) -> Store:
        """Return another store on the same place, with connections of its own; itself where it can't be shared."""
        self.check_open()
        if self._reopen is None or not self.capabilities.processes:
            return self
        return Store(
            self._reopen(self._engine.url),
            clock=self._clock,
            codecs=self.codecs,
            max_payload=self.max_payload,
            max_result=self.max_result,
            hooks=self.hooks,
        )

    # --- for users -----------------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._engine.capabilities

    def queue(
        self,
        name: str,
        options: QueueOptions | None = None,
        *,
        codec: str | Codec | None = None,
        **fields: Unpack[QueueFields],
    ) -> Queue:
        """Return a handle of the queue."""
        self.check_open()
        return Queue.make(self.auto_session, name, options, codec, fields)

    def transaction(self) -> Transaction:
        """Return a transaction to enter."""
        self.check_open()
        return Transaction(self)

    def join(self, connection: object, *, wake: Wake = "poll") -> Joined:
        """Return the same as a transaction, over a connection that the application has open."""
        self.check_open()
        if not self.capabilities.join:
            raise NotSupportedError("this engine does not declare the capability 'join'")
        if wake not in get_args(Wake):
            raise ValidationError(f"wake must be 'poll' or 'notify', not {shown(wake)}")
        if wake == "notify":
            self.check_notifies()
        return Joined(self, cast(Joining, self._engine), connection, wake)

    def notify(self, channel: str, payload: str = "") -> None:
        """Send to the channel's listeners."""
        self.check_open()
        name, text = check_notification(channel, payload)
        self.check_notifies()
        self.auto_session.executor().notify(name, text)
        self.wakes.ring({}, notified=True)

    def listen(self, *channels: str) -> Listener:
        """Return a listener."""
        self.check_open()
        names = frozenset(check_name(channel, "channel name") for channel in channels)
        if not names:
            raise ValidationError("channels must be one channel name at least")
        self.check_notifies()
        self.auto_session.executor()
        return Listener(self, cast(Notifying, self._engine).listen(names))

    def queues(self) -> list[str]:
        """Return the names of the queues that have rows."""
        self.check_open()
        return self.auto_session.executor().queues()

    def get_job(self, job_id: int) -> Job | None:
        """Return a job of any queue."""
        return find_job(self.auto_session, None, job_id)

    def result(self, job_id: int) -> Result | None:
        """Return what a job of any queue has come to."""
        return find_result(self.auto_session, None, job_id)

    def health(self) -> Health:
        """Say how the database is."""
        self.check_open()
        self.auto_session.executor()
        health = self._engine.health()
        now = self.now()
        return health if now is None else replace(health, now=to_datetime(now))

    def close(self) -> None:
        """Close; a second time does nothing."""
        if not self._closing.acquire(blocking=False):
            return  # somebody has closed it, or is about to
        self._closed = True
        self.wakes.close()
        self._engine.close()

    def __enter__(self) -> Self:
        """Return the store itself."""
        self.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def open(  # noqa: A001 - alkstore.open is the name that the contract gives it
    url: str | None = None,
    *,
    migrate: bool = True,
    durability: str = "full",
    lock_timeout: Duration = 30,
    clock: Callable[[], datetime] | None = None,
    codecs: Iterable[Codec] = (),
    max_payload: int = PAYLOAD_BYTES,
    max_result: int = RESULT_BYTES,
    hooks: Iterable[Hooks] = (),
    **engine_options: object,
) -> Store:
    """Open a store on the database that the URL names (S-1, S-2).

    ``url``: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``sqlite:///:memory:``, ``postgresql://...`` with
    libpq's parameters, or any other installed engine's; ``None`` takes ``ALKSTORE_URL`` from the environment.
    ``migrate``: create or upgrade the schema, else refuse one that isn't current. ``durability``: ``full``, a commit
    survives a power cut; or ``relaxed``, it survives the process and may be lost to a power cut. ``lock_timeout``:
    how long to wait for a lock or a free connection before ``EngineBusyError`` (Z-12). ``clock``: a callable that
    returns an aware ``datetime``, used instead of the database's clock, everywhere. ``codecs``: further codecs, by
    their names. ``max_payload``: the limit of an encoded payload, in bytes; ``max_result``: that of a result. ``hooks``: what
    is told of jobs as they go by (see ``Hooks``). Other keywords are the engine's own.

    Raises ``ValidationError`` naming the argument, ``UnknownEngineError``, ``SchemaError``, and an ``EngineError``
    where the database can't be reached.
    """
    given = opening.url_from_environment() if url is None else url
    factory = opening.find_engine(given)
    if not isinstance(cast(object, migrate), bool):
        raise ValidationError(f"migrate must be a bool, not {type(migrate).__name__}")
    if durability not in get_args(Durability):
        raise ValidationError(f"durability must be 'full' or 'relaxed', not {shown(durability)}")
    options = EngineOptions(
        migrate=migrate, durability=cast(Durability, durability), lock_timeout=duration(lock_timeout, "lock_timeout")
    )
    if clock is not None:
        if not callable(cast(object, clock)):
            raise ValidationError(f"clock must be a callable, not {type(clock).__name__}")
        to_datetime(reading(clock))  # a clock that can't be used is found now, and not in the middle of something
    if isinstance(codecs, str | bytes) or not isinstance(cast(object, codecs), Iterable):
        raise ValidationError(f"codecs must be an iterable of codecs, not {type(codecs).__name__}")
    limit = check_int(max_payload, "max_payload", 1, _PAYLOAD_LIMIT_MAX)
    result_limit = check_int(max_result, "max_result", 1, _PAYLOAD_LIMIT_MAX)
    known = Codecs(codecs, limit)
    told = telling(hooks)
    again = replace(options, migrate=False)
    return Store(
        factory(given, options, engine_options),
        clock=clock,
        codecs=known,
        max_payload=limit,
        max_result=result_limit,
        reopen=opening.Reopen(factory, again, engine_options),
        hooks=told,
    )


def open_from(config: Mapping[str, object]) -> Store:
    """Open a store from a mapping: ``url``, and the other arguments of ``open`` by the same names (S-1).

    Raises ``ValidationError`` naming the key, and whatever ``open`` raises.
    """
    url, options = opening.split_config(config)
    return open(cast(str, url), **cast(Any, options))
