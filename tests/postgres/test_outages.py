"""The server goes away and comes back, and connections are cut at every bad moment (S-5)."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

import alkstore
from alkstore.errors import EngineUnavailableError, OutcomeUnknownError, StoreClosedError, TransactionError
from alkstore.store import Store
from alkstore_postgres.pool import has_ended
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, in_transaction, line_of, pool_of
from tests.support.postgres_server import PostgresServer, private_server
from tests.support.tcp_proxy import Fate, TcpProxy
from tests.support.waiting import wait_until

WAIT = 60


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server of these tests' own, to stop and start."""
    with private_server() as server:
        yield server


@pytest.fixture
def proxy(database: str) -> Iterator[TcpProxy]:
    parts = urlsplit(database)
    assert parts.hostname is not None
    assert parts.port is not None
    with TcpProxy(parts.hostname, parts.port) as running:
        yield running


@pytest.fixture(params=["session", "transaction"])
def through(request: pytest.FixtureRequest, database: str, proxy: TcpProxy, open_store: Opener) -> Callable[..., Store]:
    """Open a store whose connections go through the proxy, sessions being its own, or lent by the transaction."""
    parts = urlsplit(database)
    login = f"{parts.username}:{parts.password}"
    url = parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}", query="sslmode=disable").geturl()

    def opener(**options: Any) -> Store:
        return open_store(url, pooler=request.param, **options)

    return opener


def everything(store: Store, job: int) -> list[Callable[[], Any]]:
    queue = store.queue("q")
    return [
        lambda: queue.enqueue(1),
        lambda: queue.claim_one("w"),
        lambda: queue.get_job(job),
        queue.stats,
        queue.jobs,
        queue.sweep_expired,
        store.queues,
        store.health,
        store.transaction().__enter__,
    ]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_goes_away_and_comes_back(own_server: PostgresServer, mode: Any) -> None:
    """Every call is told at once, none is left in doubt as nothing was sent, and the same store works again at once."""
    with alkstore.open(own_server.url, schema=f"s{secrets.token_hex(6)}", pool_size=4) as store:
        queue = store.queue("q")
        job = queue.enqueue(1)
        rest(store, 3)
        own_server.stop(mode)
        for _ in range(2):
            for call in everything(store, job):
                with pytest.raises(EngineUnavailableError):
                    call()
        own_server.start()
        for call in everything(store, job)[:-1]:
            call()
        assert queue.enqueue(2) > job


def rest(store: Store, count: int) -> None:
    """Have so many connections lie in the pool."""
    barrier = threading.Barrier(count)

    def hold() -> None:
        with store.transaction():
            barrier.wait(WAIT)

    threads = [threading.Thread(target=hold) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)


def test_a_restart_while_the_store_is_idle_is_not_seen(own_server: PostgresServer) -> None:
    """The end has arrived before anything is sent, so that another connection is taken."""
    with alkstore.open(own_server.url, schema=f"s{secrets.token_hex(6)}", pool_size=4) as store:
        queue = store.queue("q")
        rest(store, 4)
        own_server.restart()
        assert [queue.enqueue(n) for n in range(8)] == list(range(1, 9))
        rest(store, 4)
        own_server.restart("immediate")
        with store.transaction() as tx:
            tx.queue("q").enqueue(8)


def test_sessions_that_the_server_ends_while_idle_are_not_seen(open_store: Opener, database: str, door: Door) -> None:
    """As by idle_session_timeout or an administrator."""
    store = open_store(database + "?options=-c%20idle_session_timeout%3D100")
    queue = store.queue("q")
    for n in range(3):
        queue.enqueue(n)
        wait_until(lambda: not door.sessions(), WAIT, "the server to end the idle session")
    store.close()
    store = open_store()
    rest(store, 3)
    for pid, _ in door.sessions():
        door.do("SELECT pg_terminate_backend(%s, 10000)", pid)
    assert [store.queue("q").enqueue(n) for n in range(4)] == [4, 5, 6, 7]


def sends(value: bytes | int) -> Callable[[bytes], bool]:
    """Say what sends the value, as a parameter or written into the statement."""
    forms = (
        (value, value.hex().encode()) if isinstance(value, bytes) else (value.to_bytes(8, "big"), str(value).encode())
    )
    return lambda data: any(form in data for form in forms)


@pytest.mark.parametrize("fate", ["answered", "lost"])
def test_a_write_that_is_cut_after_it_was_sent_is_in_doubt(
    through: Callable[..., Store], proxy: TcpProxy, door: Door, fate: Fate
) -> None:
    """All of it happened, or nothing, and the error says that it isn't known which; the next call works."""
    store = through()
    queue = store.queue("q")
    first = queue.enqueue("before")
    sprung = proxy.cut_at(sends(b"the-one-that-is-cut"), fate)
    with pytest.raises(OutcomeUnknownError):
        queue.enqueue("the-one-that-is-cut")
    assert sprung.wait(WAIT)
    rows = door.ask("SELECT convert_from(payload, 'UTF8') FROM {jobs} ORDER BY id")
    assert rows == ([('"before"',), ('"the-one-that-is-cut"',)] if fate == "answered" else [('"before"',)])
    assert queue.enqueue("after") > first
    assert in_transaction(door.sessions()) == []


@pytest.mark.parametrize("fate", ["answered", "lost"])
def test_an_ack_that_is_cut_may_be_made_again(through: Callable[..., Store], proxy: TcpProxy, fate: Fate) -> None:
    """Z-6: and its False may mean that it had worked."""
    store = through()
    queue = store.queue("q")
    queue.enqueue(1)
    handle = queue.claim_one("w")
    assert handle is not None
    proxy.cut_at(sends(handle.token), fate)
    with pytest.raises(OutcomeUnknownError):
        handle.ack()
    assert handle.ack() is (fate == "lost")
    assert queue.stats().processing == 0


@pytest.mark.parametrize("fate", ["answered", "lost"])
def test_a_read_that_is_cut_is_made_again(through: Callable[..., Store], proxy: TcpProxy, fate: Fate) -> None:
    store = through()
    queue = store.queue("cut-this-queue")
    job = queue.enqueue(1)
    sprung = proxy.cut_at(b"cut-this-queue", fate)
    assert queue.stats().ready == 1
    assert sprung.wait(WAIT)
    sprung = proxy.cut_at(b"cut-this-queue", fate)
    assert [found.id for found in queue.jobs()] == [job]
    assert sprung.wait(WAIT)


def test_a_read_that_is_cut_with_nothing_left_to_connect_to_is_unavailable(
    through: Callable[..., Store], proxy: TcpProxy
) -> None:
    store = through()
    queue = store.queue("cut-this-queue")
    queue.enqueue(1)
    proxy.refuse()
    proxy.cut_at(b"cut-this-queue", "lost")
    with pytest.raises(EngineUnavailableError):
        queue.stats()
    proxy.accept()
    assert queue.stats().ready == 1


def test_a_sweep_that_is_cut_before_its_commit_is_made_again(
    through: Callable[..., Store], proxy: TcpProxy, door: Door
) -> None:
    """Nothing can have happened: what is cut is a statement inside a transaction."""
    store = through()
    queue = store.queue("cut-this-queue")
    job = queue.enqueue(1, expires=60)
    door.do("UPDATE {jobs} SET expires_at = 1, next_at = 1")
    sprung = proxy.cut_at(b"cut-this-queue", "answered")
    swept = queue.sweep_expired()
    assert sprung.wait(WAIT)
    # Until the server has seen the end of the first session, that one's lock makes the second pass the job over.
    # How many there are says nothing: a ring may have needed a session beside it.
    wait_until(lambda: {state for _, state in door.sessions()} == {"idle"}, WAIT, "the server to end the cut session")
    assert swept + queue.sweep_expired() == 1
    assert door.dead() == {job}


@pytest.mark.parametrize("fate", ["answered", "lost"])
def test_a_transaction_that_is_cut_at_its_commit_is_in_doubt(
    through: Callable[..., Store], proxy: TcpProxy, door: Door, fate: Fate
) -> None:
    """T-1: whole or absent."""
    store = through()
    sprung = proxy.cut_at(b"COMMIT\0", fate)  # the whole word: BEGIN names an isolation with the same beginning
    with pytest.raises(OutcomeUnknownError), store.transaction() as tx:
        tx.queue("q").enqueue_many([1, 2, 3])
    assert sprung.wait(WAIT)
    assert len(door.live()) == (3 if fate == "answered" else 0)
    with store.transaction() as tx:
        tx.queue("q").enqueue(4)
    assert store.queue("q").stats().ready == (4 if fate == "answered" else 1)
    assert in_transaction(door.sessions()) == []


@pytest.mark.parametrize("fate", ["answered", "lost"])
def test_a_transaction_that_is_cut_at_its_beginning_is_begun_again(
    through: Callable[..., Store], proxy: TcpProxy, fate: Fate
) -> None:
    """Nothing can have happened by a BEGIN."""
    store = through()
    sprung = proxy.cut_at(b"BEGIN", fate)
    with store.transaction() as tx:
        tx.queue("q").enqueue(1)
    assert sprung.wait(WAIT)
    assert store.queue("q").stats().ready == 1


def test_a_transaction_that_is_cut_before_its_commit_did_not_happen(
    through: Callable[..., Store], proxy: TcpProxy, door: Door
) -> None:
    """Whether the cut is seen by a statement, or has arrived when the commit would be sent."""
    store = through()
    with pytest.raises(TransactionError), store.transaction() as tx:
        tx.queue("q").enqueue(1)
        proxy.cut()
        with pytest.raises(EngineUnavailableError):
            tx.queue("q").enqueue(2)
        with pytest.raises(TransactionError):
            tx.queue("q").enqueue(3)
    with pytest.raises(EngineUnavailableError), store.transaction() as tx:
        tx.queue("q").enqueue(1)
        connection = tx.execute("SELECT 1").connection
        proxy.cut()
        wait_until(lambda: has_ended(connection), WAIT, "the end to arrive")
    wait_until(lambda: not door.sessions(), WAIT, "the server to notice")
    assert door.live() == set()
    assert store.queue("q").enqueue(4) > 0


def test_a_server_that_stays_silent_is_unavailable_after_the_connect_timeout(
    through: Callable[..., Store], proxy: TcpProxy
) -> None:
    store = through(connect_timeout=2, wakes="poll")  # no doorbell that would connect anew
    queue = store.queue("q")
    queue.enqueue(1)
    proxy.cut()
    wait_until(lambda: proxy.connections == 0, WAIT, "the connections to end")
    proxy.silence()
    with pytest.raises(EngineUnavailableError):
        queue.enqueue(2)
    proxy.speak()
    assert queue.enqueue(3) > 1


def test_several_hosts_are_tried_in_turn(database: str, proxy: TcpProxy, open_store: Opener) -> None:
    """libpq's own list of hosts: one that refuses is passed over."""
    parts = urlsplit(database)
    login = f"{parts.username}:{parts.password}"
    dead = proxy.port
    proxy.refuse()
    netloc = f"{login}@127.0.0.1:{dead},127.0.0.1:{parts.port}"
    assert open_store(parts._replace(netloc=netloc).geturl()).queue("q").enqueue(1) == 1


def test_a_unix_socket_will_do(postgres_server: PostgresServer, open_store: Opener, schema: str) -> None:
    if postgres_server.socket_url is None:
        assert postgres_server.source in ("url", "docker")  # no socket to be had here
        return
    store = open_store(postgres_server.socket_url)
    assert store.queue("q").enqueue(1) == 1
    with psycopg.connect(postgres_server.socket_url, autocommit=True) as connection:
        store.close()
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def test_closing_ends_what_is_open(open_store: Opener, door: Door) -> None:
    """S-3: a transaction in another thread is rolled back, whoever waits for a connection is told, and no session is left."""
    store = open_store(pool_size=1)
    queue = store.queue("q")
    begun, closed, seen = threading.Event(), threading.Event(), list[type[BaseException]]()

    def hold() -> None:
        try:
            with store.transaction() as tx:
                tx.queue("q").enqueue(1)
                begun.set()
                closed.wait(WAIT)
        except alkstore.AlkstoreError as exc:
            seen.append(type(exc))

    def wait() -> None:
        try:
            queue.enqueue(2)
        except alkstore.AlkstoreError as exc:
            seen.append(type(exc))

    holder, waiter = threading.Thread(target=hold), threading.Thread(target=wait)
    holder.start()
    assert begun.wait(WAIT)
    waiter.start()
    wait_until(lambda: line_of(pool_of(store)), WAIT, "somebody to wait for a connection")
    store.close()
    waiter.join(WAIT)
    wait_until(lambda: not door.sessions(), WAIT, "the session to end, while its thread still holds it")
    closed.set()
    holder.join(WAIT)
    assert seen == [StoreClosedError, StoreClosedError]
    assert door.live() == set()
