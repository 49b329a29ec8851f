"""The engine: one SQLite database, its operations each in a transaction of its own, and transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from alkstore.capabilities import Capabilities
from alkstore.clock import host_now, to_datetime
from alkstore.engine import EngineOptions, Heard, Subscription
from alkstore.errors import EngineUnavailableError
from alkstore.options import check_engine_options, check_int
from alkstore.records import Health
from alkstore_sqlite import schema, sql
from alkstore_sqlite.errors import DRIVER_ERRORS, is_busy, is_lasting
from alkstore_sqlite.executor import Units
from alkstore_sqlite.joined import JoinedSqlite
from alkstore_sqlite.location import parse
from alkstore_sqlite.notify import Hub
from alkstore_sqlite.operations import Operations
from alkstore_sqlite.pool import POOL_SIZE, Pool
from alkstore_sqlite.transaction import SqliteTransaction

P = ParamSpec("P")
T = TypeVar("T")

OLDEST: Final = (3, 35, 0)
"""The oldest SQLite that will do: RETURNING came with it."""


def open_engine(url: str, options: EngineOptions, extra: Mapping[str, object]) -> SqliteEngine:
    """Open the database that an SQLite URL names, its schema created, upgraded or checked (S-1, S-2).

    ``extra`` may have ``pool_size``: the most connections to open, from 1, by default 16; there is one more
    while somebody waits or listens. Raises ``ValidationError`` for anything else in it, and for a URL that isn't one of
    SQLite's.
    """
    location = parse(url)
    size = _pool_size(extra, memory=location.path is None)
    if sqlite3.sqlite_version_info < OLDEST:
        raise EngineUnavailableError(
            f"alkstore needs SQLite {'.'.join(map(str, OLDEST))} or later, and this Python has {sqlite3.sqlite_version}"
        )
    if location.path is not None:
        _look_at_place(location.path, location.url, migrate=options.migrate)

    def admit(connection: sqlite3.Connection) -> None:
        # Before the first connection switches the file to its write-ahead log: what is refused is left as it was.
        version = pool.patiently(lambda: schema.read_version(connection))
        if not schema.is_current(version, pool.where) and not options.migrate:
            raise schema.refuse(version, pool.where)

    pool = Pool(location, options, size, admit)
    try:
        _ready_schema(pool)
    except BaseException:
        pool.close()
        raise
    return SqliteEngine(pool, options)


def _pool_size(extra: Mapping[str, object], *, memory: bool) -> int:
    check_engine_options(extra, frozenset({"pool_size"}), "sqlite")
    given = extra.get("pool_size")
    if memory:
        if given is not None:
            check_int(given, "pool_size of a store in memory", 1, 1)
        return 1
    return POOL_SIZE if given is None else check_int(given, "pool_size", 1, 10_000)


def _look_at_place(path: str, where: str, *, migrate: bool) -> None:
    """Say clearly what SQLite would only call unable to open; nothing is opened here (see ``fork``)."""
    file = Path(path)
    try:
        is_folder, has_folder, is_there = file.is_dir(), file.parent.is_dir(), file.exists()
    except OSError:
        return  # SQLite will meet with the same, and its error be translated
    if is_folder:
        raise EngineUnavailableError(f"{where} is a folder, not a file")
    if not has_folder:
        raise EngineUnavailableError(f"{where}: there is no folder {str(file.parent)!r} to hold the file")
    if not migrate and not is_there:
        raise schema.refuse(None, where)


def _ready_schema(pool: Pool) -> None:
    units = pool.take()
    connection = units.connection

    def begin() -> None:
        pool.patiently(lambda: connection.execute(sql.BEGIN))

    def commit() -> None:
        pool.patiently(lambda: connection.execute(sql.COMMIT))

    try:
        version = pool.patiently(lambda: schema.read_version(connection))
        if not schema.is_current(version, pool.where):
            schema.migrate(connection, pool.where, begin, commit)
    except DRIVER_ERRORS as exc:
        raise pool.failure(exc) from exc
    finally:
        pool.give(units)


class AutoCommit(Operations):
    """Each operation in a transaction of its own, committed when it returns.

    Reads take no lock. Writes wait for theirs before they read anything, so that none is ever refused half way and
    nothing has to be run again.
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool

    def read(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit that is one SELECT, which is a snapshot of its own."""
        try:
            return self._read_once(unit, *args, **kwargs)
        except DRIVER_ERRORS as exc:
            if not is_busy(exc):
                raise self._pool.failure(exc) from exc
        # Another process recovers or closes the database, which is when WAL's readers are refused.
        try:
            return self._pool.patiently(lambda: self._read_once(unit, *args, **kwargs))
        except DRIVER_ERRORS as exc:
            raise self._pool.failure(exc) from exc

    def _read_once(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        pool = self._pool
        units = pool.take()
        try:
            pool.files.check_whole()
            result = unit(units, *args, **kwargs)
        except DRIVER_ERRORS as exc:
            (pool.discard if is_lasting(exc) else pool.give)(units)
            raise
        except BaseException:
            pool.give(units)
            raise
        pool.give(units)
        return result

    def write(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit between BEGIN IMMEDIATE and COMMIT."""
        writers = self._pool.writers
        turn = writers.turn()
        try:
            result = unit(writers.begin(turn), *args, **kwargs)
            writers.commit(turn)
        except DRIVER_ERRORS as exc:
            writers.abandon(turn, keep=not is_lasting(exc))
            raise self._pool.failure(exc) from exc
        except BaseException:
            writers.abandon(turn)
            raise
        finally:
            writers.dismiss(turn)
        return result


class SqliteEngine:
    """One open SQLite database, safe for threads and across ``fork()`` (S-4); see ``alkstore.engine.Engine``."""

    def __init__(self, pool: Pool, options: EngineOptions) -> None:
        self._pool: Final = pool
        self._options: Final = options
        self._auto: Final = AutoCommit(pool)
        self._hub: Final = Hub(pool, self._auto)

    @property
    def name(self) -> str:
        """The engine's name."""
        return "sqlite"

    @property
    def url(self) -> str:
        """With the file's absolute path."""
        return self._pool.location.url

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: a file everything, memory neither last nor be shared by processes or connections (S-7)."""
        on_disk = self._pool.location.path is not None
        return Capabilities(
            durable=on_disk, processes=on_disk, transactions=True, join=on_disk, notify=True, sql=True, results=True
        )

    def executor(self) -> AutoCommit:
        """Return the operations, each in a transaction of its own."""
        return self._auto

    def begin(self) -> SqliteTransaction:
        """Begin a transaction, with the write lock (T-6); raise ``EngineBusyError`` where it doesn't come in time."""
        transaction = SqliteTransaction(self._pool)
        try:
            transaction.begin()
        except BaseException:
            transaction.rollback()
            raise
        return transaction

    def join(self, connection: object) -> JoinedSqlite:
        """Return a connection of the application's own, ready for operations (T-3)."""
        return JoinedSqlite(self._pool, connection)

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Tell other processes of a commit (W-4)."""
        self._hub.ring(rings, notified=notified)

    def is_heard(self, rings: Mapping[str, int], *, notified: bool) -> bool:  # noqa: ARG002 - of whichever queues
        """Say whether anybody else can hear: of a store in memory, only its own listeners."""
        return notified or self._pool.location.path is not None

    def attend(self, heard: Heard, who: object) -> None:
        """Hear of other processes' commits."""
        self._hub.attend(heard, who)

    def leave(self, who: object) -> None:
        """End what ``attend`` began."""
        self._hub.leave(who)

    def listen(self, channels: frozenset[str]) -> Subscription:
        """Subscribe to notifications (W-1)."""
        return self._hub.listen(channels)

    def health(self) -> Health:
        """Say how the database is (Q-8)."""
        version = self._auto.read(_read_version)
        if version is None:
            raise schema.refuse(None, self._pool.where)
        reason = self._hub.wakes_reason
        return Health(
            engine=self.name,
            server_version=sqlite3.sqlite_version,
            schema_version=version,
            code_version=schema.CODE_VERSION,
            durability=self._options.durability,
            now=to_datetime(host_now()),
            clock_skew=timedelta(0),
            oldest_snapshot_age=None,
            wal_bytes=self._wal_bytes(),
            wakes="notify" if reason is None else "poll",
            wakes_reason=reason,
        )

    def close(self) -> None:
        """Close the connections; transactions still open in threads are rolled back (S-3)."""
        self._hub.close()
        self._pool.close()
        self._hub.join()

    def _wal_bytes(self) -> int | None:
        path = self._pool.location.path
        if path is None:
            return None
        try:
            return Path(path + "-wal").stat().st_size
        except FileNotFoundError:
            return 0
        except OSError:
            return None  # a folder that may not be looked into


def _read_version(units: Units) -> schema.Version | None:
    return schema.read_version(units.connection)
