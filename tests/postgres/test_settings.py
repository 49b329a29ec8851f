"""Defaults of role, database and session do no harm: the library sets or names what it counts on (Z-12)."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import sql

import alkstore
from alkstore.errors import EngineBusyError
from alkstore.store import Store
from contract_tests.scale import rounds
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, in_transaction
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

WAIT = 60


def set_on_session(url: str, **settings: str) -> str:
    words = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())
    return f"{url}?options={quote(words)}"


@pytest.fixture
def a_role(postgres_server: PostgresServer, database: str) -> Iterator[Any]:
    """Make roles with settings of their own; the URL of the folder's database with such a role is returned."""
    made: list[sql.Identifier] = []

    def make(**settings: str) -> str:
        role = f"set_{secrets.token_hex(4)}"
        made.append(sql.Identifier(role))
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD 'set'").format(made[-1]))
            for name, value in settings.items():
                connection.execute(
                    sql.SQL("ALTER ROLE {} SET {} = {}").format(made[-1], sql.Identifier(name), sql.Literal(value))
                )
        parts = urlsplit(database)
        return parts._replace(netloc=f"{role}:set@{parts.hostname}:{parts.port}").geturl()

    yield make
    with psycopg.connect(database, autocommit=True) as connection:
        for role in made:
            connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def where_set(postgres_server: PostgresServer, a_role: Any, database: str) -> Iterator[Any]:
    """Return the URL of a database with settings of a role, of the database, or of each session."""
    made: list[str] = []

    def make(where: str, **settings: str) -> str:
        if where == "role":
            return a_role(**settings)
        if where == "session":
            return set_on_session(database, **settings)
        made.append(postgres_server.create_database(**settings))
        return made[-1]

    yield make
    for url in made:
        postgres_server.drop_database(url)


def work_through(store: Store) -> Counter[int]:
    """Have 8 threads enqueue, claim and settle jobs, and return how often each was acked."""
    queue = store.queue("q")
    count = max(80, rounds(2_000))
    done: Counter[int] = Counter()
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work() -> None:
        try:
            start.wait(WAIT)
            queue.enqueue_many(range(count // 8))
            while handles := queue.claim_batch("w", 3):
                for handle in handles:
                    with handle.transaction() as tx:
                        tx.execute("SELECT 1")
                    done[handle.id] += 1
        except BaseException as exc:
            failures.append(exc)
            raise

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    while handles := queue.claim_batch("w", 100):  # of those who enqueued after the others had gone
        done.update(handle.id for handle in handles if handle.ack())
    return done


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
@pytest.mark.parametrize("where", ["role", "database", "session"])
def test_a_stricter_default_isolation_gives_each_job_once_and_no_error(
    open_store: Opener, where_set: Any, level: str, where: str
) -> None:
    url = where_set(where, default_transaction_isolation=level)
    with psycopg.connect(url) as connection:
        assert connection.execute("SHOW default_transaction_isolation").fetchone() == (level,)
    store = open_store(url)
    done = work_through(store)
    assert set(done.values()) == {1}
    assert len(done) == max(80, rounds(2_000)) // 8 * 8
    store.close()


@pytest.mark.parametrize("where", ["role", "database", "session"])
def test_short_time_limits_do_no_harm(
    postgres_server: PostgresServer, open_store: Opener, where_set: Any, schema: str, where: str
) -> None:
    """A statement that waits for longer than all of them gets its lock; a transaction that rests for longer goes on."""
    limits: dict[str, str] = dict.fromkeys(
        ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"), "300ms"
    )
    with psycopg.connect(postgres_server.url) as connection:
        if connection.info.server_version >= 170000:
            limits["transaction_timeout"] = "400ms"
    url = where_set(where, **limits)
    with psycopg.connect(url) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("300ms",)
    store = open_store(url)
    queue = store.queue("q")
    with psycopg.connect(url, autocommit=True) as connection:
        for name in limits:
            connection.execute(sql.SQL("SET {} TO 0").format(sql.Identifier(name)))
        wait_beyond_the_limits(store, Door(connection, schema))
    assert queue.stats().ready == 2
    store.close()


def wait_beyond_the_limits(store: Store, door: Door) -> None:
    """Have a transaction rest, a statement of it run, and a call wait for a lock, each for longer than 400 ms."""
    queue = store.queue("q")
    job = queue.enqueue(1)
    with store.transaction() as tx:
        tx.queue("q").enqueue(2)
        # On the server and beside it: as long as all the limits together, so that each would have struck.
        tx.execute("SELECT pg_sleep(0.5)")
        threading.Event().wait(0.5)
        tx.queue("q").enqueue(3)
    door.do("BEGIN")
    door.do("SELECT FROM {jobs} WHERE id = %s FOR UPDATE", job)
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(queue.cancel(job)))
    waiter.start()
    door.do("SELECT pg_sleep(0.6)")
    assert answers == []
    door.do("COMMIT")
    waiter.join(WAIT)
    assert answers == [True]


def test_a_read_only_default_does_no_harm(open_store: Opener, a_role: Any) -> None:
    store = open_store(a_role(default_transaction_read_only="on"))
    queue = store.queue("q")
    queue.enqueue(1)
    with store.transaction() as tx:
        assert tx.queue("q").claim_one("w") is not None


def test_a_default_server_has_little_set(open_store: Opener) -> None:
    """Only what differs is set: behind a pooler, less to carry from one client to the next."""
    store = open_store()
    with store.transaction() as tx:
        rows = tx.execute("SELECT name FROM pg_settings WHERE source = 'session' ORDER BY name").fetchall()
    names = {row[0] for row in rows} - {"client_encoding", "application_name"}
    assert "lock_timeout" in names
    assert names.isdisjoint({"default_transaction_isolation", "statement_timeout", "synchronous_commit", "search_path"})


@pytest.mark.parametrize(
    ("durability", "setting", "found"),
    [
        ("full", "off", "on"),
        ("full", "remote_apply", "remote_apply"),
        ("relaxed", "on", "off"),
        ("full", "local", "on"),
    ],
)
def test_durability(open_store: Opener, database: str, durability: str, setting: str, found: str) -> None:
    """``full`` is synchronous_commit=on, or the role's stronger one; ``relaxed`` is off."""
    store = open_store(set_on_session(database, synchronous_commit=setting), durability=durability)
    with store.transaction() as tx:
        assert tx.execute("SHOW synchronous_commit").fetchone() == (found,)
    assert store.health().durability == durability


def test_a_foreign_lock_is_busy_after_lock_timeout_and_then_all_is_well(open_store: Opener, door: Door) -> None:
    """Z-12: nothing happened, no session is left in a transaction, and the call works once the lock is gone."""
    store = open_store(lock_timeout=0.3)
    queue = store.queue("q")
    job = queue.enqueue(1)
    handle = queue.claim_one("w")
    assert handle is not None
    with door.connection.transaction():
        door.do("SELECT FROM {jobs} WHERE id = %s FOR UPDATE", job)
        for call in (
            handle.ack,
            handle.heartbeat,
            handle.retry,
            handle.fail,
            handle.release,
            lambda: queue.cancel(job),
        ):
            with pytest.raises(EngineBusyError, match="lock_timeout"):
                call()
        with pytest.raises(EngineBusyError), handle.transaction():
            pytest.fail("the claim can't be held")
        assert queue.claim_one("w") is None  # skips
        with pytest.raises(EngineBusyError), store.transaction() as tx:
            tx.queue("q").cancel(job)
    assert in_transaction(door.sessions()) == []
    assert handle.ack()
    with door.connection.transaction():
        door.do("LOCK TABLE {jobs} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(EngineBusyError):
            queue.enqueue(2)
    assert queue.enqueue(2) > job


def test_a_deadlock_is_run_again(open_store: Opener, door: Door, database: str) -> None:
    """Z-12: an auto-commit call that is the victim of a deadlock with an application's transaction succeeds all the same."""
    # The library's session looks for a deadlock first, by its time limit, and so is the victim.
    store = open_store(set_on_session(database, deadlock_timeout="2s"))
    queue = store.queue("q")
    one, two = queue.enqueue_many([1, 2])
    handles = queue.claim_batch("w", 2)
    door.do("SET deadlock_timeout = '60s'")
    door.do("BEGIN")
    door.do("SELECT FROM {jobs} WHERE id = %s FOR UPDATE", two)
    counts: list[int] = []
    acking = threading.Thread(target=lambda: counts.append(queue.ack_batch(handles)))
    acking.start()
    wait_until(door.waiting, WAIT, "the ack to wait for the second job's lock")
    # The ack holds one and waits for two; this waits for one, which is the deadlock.
    door.do("SELECT FROM {jobs} WHERE id = %s FOR UPDATE", one)
    door.do("COMMIT")
    acking.join(WAIT)
    assert counts == [2]
    assert door.live() == set()


def test_preparing_everything_at_once_works(open_store: Opener) -> None:
    """``prepare_threshold=0``, from the migration on; the application's statements and savepoints included."""
    store = open_store(prepare_threshold=0)
    with store.transaction() as tx:
        tx.execute("SELECT 1")
        with pytest.raises(ZeroDivisionError), tx.transaction() as inner:
            inner.queue("q").enqueue(1 // 0)
        tx.queue("q").enqueue(1)
    assert work_through(store)


def test_a_database_without_nulls_in_arrays_does_no_harm(open_store: Opener, where_set: Any) -> None:
    store = open_store(where_set("database", array_nulls="off"))
    queue = store.queue("q")
    queue.enqueue_many([1, alkstore.Item(2, expires=100)])
    one, two = queue.claim_batch("w", 2)
    assert one.release()
    assert two.retry(delay=0)
    store.close()
