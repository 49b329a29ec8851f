"""The engine: one open place in a PostgreSQL database (see ``alkstore.engine.Engine``)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import psycopg

from alkstore.capabilities import Capabilities
from alkstore.clock import host_now, to_datetime, to_timedelta
from alkstore.engine import Engine, EngineOptions, Heard, Joining, Notifying, Subscription
from alkstore.records import Health
from alkstore_postgres import schema, sql
from alkstore_postgres.errors import Sent, is_lost, translate
from alkstore_postgres.executor import PostgresExecutor
from alkstore_postgres.joined import Doorkeeper, PostgresJoined
from alkstore_postgres.location import Location, locate
from alkstore_postgres.notify import Ear
from alkstore_postgres.pool import Pool
from alkstore_postgres.runner import AutoRunner, rows
from alkstore_postgres.transaction import PostgresTransaction

CAPABILITIES: Final = Capabilities(
    durable=True, processes=True, transactions=True, join=True, notify=True, sql=True, results=True
)


class PostgresEngine(Engine, Joining, Notifying):
    """A store's schema in a PostgreSQL database, reached through a pool of connections."""

    def __init__(self, location: Location, options: EngineOptions) -> None:
        """Connect, and create, upgrade or check the schema (S-2)."""
        self._location = location
        self._options = options
        self._statements = sql.Statements(location.schema)
        self._pool = Pool(location, options.durability, options.lock_timeout)
        # The open ones, for close() to cut off. A dict: adding, removing and copying are single steps for threads.
        self._transactions: dict[PostgresTransaction, None] = {}
        self._runner = AutoRunner(self._pool, self._statements)
        self._doorkeeper = Doorkeeper(self._pool, self._statements)
        self._ear = Ear(self._pool, self._statements)
        try:
            self._open()
        except BaseException:
            self._pool.close()
            raise

    def __repr__(self) -> str:
        return f"<PostgresEngine on {self._location.where}, schema {self._location.schema!r}>"

    def _open(self) -> None:
        location = self._location
        connection = self._pool.acquire()
        try:
            schema.check_server(connection, location.where)
            version = schema.read_version(connection, self._statements)
            if not schema.is_current(version, location.where):
                if not self._options.migrate:
                    raise schema.refuse(version, location.where, location.schema)
                schema.migrate(connection, self._statements, location.schema, location.where)
        except psycopg.Error as exc:
            lost = is_lost(exc, connection)
            if lost:
                self._pool.discard(connection)
            raise translate(exc, Sent.HARMLESS, lost=lost) from exc
        finally:
            self._pool.release(connection)

    @property
    def name(self) -> str:
        """The engine's name."""
        return "postgresql"

    @property
    def url(self) -> str:
        """As it was given."""
        return self._location.url

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return CAPABILITIES

    def executor(self) -> PostgresExecutor:
        """Return the operations, each in a transaction of its own."""
        return PostgresExecutor(self._runner, self._statements.channels)

    def begin(self) -> PostgresTransaction:
        """Begin a transaction."""
        transaction = PostgresTransaction(self._pool, self._statements, self._forget)
        try:
            transaction.begin()
            self._transactions[transaction] = None
            if self._pool.closed:  # close() may have made its list just before
                transaction.cut()
        except BaseException:
            transaction.rollback()
            raise
        return transaction

    def join(self, connection: object) -> PostgresJoined:
        """Return a connection of the application's own, ready for operations."""
        return PostgresJoined(self._pool, self._statements, self._doorkeeper.admit(connection))

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Tell other stores' waiters of a commit (W-4)."""
        self._ear.ring(rings, notified=notified)

    def is_heard(self, rings: Mapping[str, int], *, notified: bool) -> bool:  # noqa: ARG002 - the server tells listeners
        """Say whether waiters are told."""
        return bool(rings) and not self._pool.location.silent

    def attend(self, heard: Heard, who: object) -> None:
        """Hear of other stores' commits."""
        self._ear.attend(heard, who)

    def leave(self, who: object) -> None:
        """End what ``attend`` began."""
        self._ear.leave(who)

    def listen(self, channels: frozenset[str]) -> Subscription:
        """Subscribe to notifications (W-1)."""
        return self._ear.listen(channels)

    def _forget(self, transaction: PostgresTransaction) -> None:
        self._transactions.pop(transaction, None)

    def health(self) -> Health:
        """Say how the database is (Q-8)."""
        connection = self._pool.acquire()
        try:
            before, started = host_now(), time.monotonic()
            now, snapshot = rows(connection, self._statements[sql.HEALTH], {"now": None}, prepare=False)[0]
            half_way = int((time.monotonic() - started) * 500_000)
            version = schema.read_version(connection, self._statements)
            try:
                wal = rows(connection, self._statements[sql.WAL_BYTES], {}, prepare=False)[0][0]
            except psycopg.errors.InsufficientPrivilege:
                wal = None
            spelled = connection.info.parameter_status("server_version") or str(connection.info.server_version)
        except psycopg.Error as exc:
            lost = is_lost(exc, connection)
            if lost:
                self._pool.discard(connection)
            raise translate(exc, Sent.HARMLESS, lost=lost) from exc
        finally:
            self._pool.release(connection)
        if version is None:
            raise schema.refuse(None, self._location.where, self._location.schema)
        wakes, reason = self._ear.wakes
        return Health(
            engine=self.name,
            server_version=spelled,
            schema_version=version,
            code_version=schema.CODE_VERSION,
            durability=self._options.durability,
            now=to_datetime(now),
            clock_skew=to_timedelta(now - (before + half_way)),
            oldest_snapshot_age=None if snapshot is None else to_timedelta(max(0, snapshot)),
            wal_bytes=wal,
            wakes=wakes,
            wakes_reason=reason,
        )

    def close(self) -> None:
        """Close the connections; transactions still open in threads are cut off, which rolls them back (S-3)."""
        self._ear.close()
        self._pool.close()
        for transaction in list(self._transactions):
            transaction.cut()


def open_engine(url: str, options: EngineOptions, extra: Mapping[str, object]) -> PostgresEngine:
    """Open the place that the URL names; the driver is there."""
    return PostgresEngine(locate(url, extra), options)
