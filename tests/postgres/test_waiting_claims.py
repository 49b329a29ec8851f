"""Claims beside open transactions, and closing beside calls that are blocked (Q-CLAIM-3, S-3, Q-6)."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from alkstore import StoreClosedError
from alkstore.limits import SWEEP_BATCH
from alkstore.store import Store
from alkstore_postgres import sql
from alkstore_postgres.sql import Statements
from contract_tests.steps import claimed
from contract_tests.travel import Clock
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, line_of, pool_of
from tests.support.waiting import wait_until

WAIT = 60.0


@pytest.mark.parametrize("pool_size", [1, 2])
def test_a_claim_in_a_transaction_never_waits_for_a_connection_to_ripen_on(
    pool_size: int, open_store: Opener, door: Door
) -> None:
    """With one free the rest is ready for others at once; with none the claim ripens within its own transaction."""
    clock = Clock()
    queue = open_store(clock=clock, pool_size=pool_size, lock_timeout=5).queue("q")
    queue.enqueue_many(range(100), delay=1)
    clock.advance(2)
    other = open_store(clock=clock, lock_timeout=5).queue("q")
    with open_store(clock=clock, pool_size=pool_size, lock_timeout=5).transaction() as tx:
        assert 0 == claimed(tx.queue("q")).payload
        handle = other.claim_one("other")
        assert (1 if pool_size > 1 else None) == (None if handle is None else handle.payload)
    assert 99 - (pool_size - 1) == len(other.claim_batch("other", 200))
    assert door.live() == {*range(1, 101)}


def test_a_lapsed_job_in_an_open_transaction_holds_no_claim_up(open_store: Opener) -> None:
    """It stays its owner's, who has it locked, and the others get what comes after it."""
    clock = Clock()
    store = open_store(clock=clock, lock_timeout=5)
    queue = store.queue("q")
    queue.enqueue("held", priority=9)
    handle = claimed(queue)
    other = open_store(clock=clock, lock_timeout=5).queue("q")
    with handle.transaction() as tx:
        clock.advance(61)
        tx.queue("results").enqueue("done")
        other.enqueue_many(["a", "b"])
        assert ["a", "b"] == [found.payload for found in other.claim_batch("other", 5)]
        assert other.claim_one("other") is None
    assert ["done"] == [job.payload for job in store.queue("results").jobs()]


def test_a_call_that_waits_for_a_lock_ends_with_the_store(open_store: Opener, door: Door) -> None:
    """``close`` cuts it off, and it says that the store was closed."""
    owner, store = open_store(), open_store()
    job_id = owner.queue("q").enqueue("work")
    handle = claimed(owner.queue("q"))
    with ThreadPoolExecutor(1) as thread, handle.transaction():
        cancelling = thread.submit(store.queue("q").cancel, job_id)
        wait_until(lambda: door.waiting() == 1, WAIT, "the cancel waits for the row")
        store.close()
        with pytest.raises(StoreClosedError):
            cancelling.result(WAIT)
    assert set() == door.live()


def test_a_purge_waits_for_a_job_in_an_open_transaction(open_store: Opener, door: Door) -> None:
    """It deletes what is there once that has ended: nothing is passed over in silence."""
    owner, store = open_store(), open_store()
    owner.queue("q").enqueue_many(["a", "b"])
    first, second = owner.queue("q").claim_batch("w", 2)
    with ThreadPoolExecutor(1) as thread:
        with owner.transaction() as tx:
            assert tx.bind(first).heartbeat(100)
            purging = thread.submit(store.queue("q").purge, "processing")
            wait_until(lambda: door.waiting() == 1, WAIT, "the purge waits for the row")
        assert 2 == purging.result(WAIT)
    assert set() == door.live()
    assert False is second.ack()


def test_a_purge_goes_on_where_others_have_deleted_what_it_waited_for(open_store: Opener, door: Door) -> None:
    """A batch that comes out smaller for that isn't the last one."""
    count = 2 * SWEEP_BATCH + 1
    owner, store = open_store(), open_store()
    ids = owner.queue("q").enqueue_many(range(count))
    with ThreadPoolExecutor(1) as thread:
        with owner.transaction() as tx:
            assert tx.queue("q").cancel(ids[0])
            purging = thread.submit(store.queue("q").purge, "pending")
            wait_until(lambda: door.waiting() == 1, WAIT, "the purge waits for the row")
        assert count - 1 == purging.result(WAIT)
    assert set() == door.live()


def test_a_lease_begins_when_the_wait_for_others_ripening_is_over(open_store: Opener, door: Door) -> None:
    """Not when the claim was called: it could be over before the handle is there."""
    queue = open_store().queue("q", visibility_timeout=1)
    queue.enqueue("work", delay=0.05)
    lock = Statements(door.schema)[sql.LOCK_RIPENING]
    with ThreadPoolExecutor(1) as thread:
        with door.connection.transaction():
            door.connection.execute(lock, {"queue": "q"})
            door.do("SELECT pg_sleep(0.1)")  # the job is due
            claiming = thread.submit(queue.claim_one, "w")
            wait_until(lambda: door.waiting() == 1, WAIT, "the claim waits for its turn to ripen")
            door.do("SELECT pg_sleep(1.1)")  # for longer than a lease
            [(over,)] = door.ask("SELECT clock_timestamp()")
        handle = claiming.result(WAIT)
    assert handle is not None
    assert handle.deadline > over + timedelta(seconds=0.9)
    assert handle.ack()


def test_a_claim_in_a_transaction_does_without_what_the_server_refuses(
    open_store: Opener, database: str, door: Door
) -> None:
    """The role's connections are spent: no other can be made to ripen on, and the claim ripens within its own."""
    role = Identifier(f"few_{secrets.token_hex(4)}")
    door.connection.execute(SQL("CREATE ROLE {} LOGIN PASSWORD 'few' CONNECTION LIMIT 1").format(role))
    parts = urlsplit(database)
    try:
        door.connection.execute(
            SQL("GRANT CREATE ON DATABASE {} TO {}").format(Identifier(parts.path.removeprefix("/")), role)
        )
        url = parts._replace(netloc=f"{role.as_string().strip(chr(34))}:few@{parts.hostname}:{parts.port}").geturl()
        clock = Clock()
        store = open_store(url, clock=clock, pool_size=2, lock_timeout=5, wakes="poll")  # a bell would need one, too
        queue = store.queue("q")
        queue.enqueue("work", delay=1)
        clock.advance(2)
        with store.transaction() as tx:
            assert "work" == claimed(tx.queue("q")).payload
        store.close()
        wait_until(lambda: not door.sessions(), WAIT, "the store's session to end")
    finally:
        door.connection.execute(SQL("DROP OWNED BY {} CASCADE").format(role))
        door.connection.execute(SQL("DROP ROLE {}").format(role))


def test_a_lease_begins_when_the_wait_for_a_connection_is_over(open_store: Opener) -> None:
    """Between finding that something has lapsed and claiming, another thread may have the only connection."""
    store = open_store(pool_size=1, wakes="poll")  # no bell in the line
    queue = store.queue("q", visibility_timeout=1)
    store.queue("q", visibility_timeout=0.05, max_attempts=1).enqueue("spent")
    claimed(queue)
    queue.enqueue("fresh")
    pool = pool_of(store)
    with ThreadPoolExecutor(2) as threads:
        with store.transaction() as tx:
            tx.execute("SELECT pg_sleep(0.1)")  # the lease lapses
            claiming = threads.submit(queue.claim_one, "w")
            wait_until(lambda: line_of(pool) == 1, WAIT, "the claim to stand in line")
            hogging = threads.submit(hog, store)
            wait_until(lambda: line_of(pool) == 2, WAIT, "the other to stand behind it")
        handle = claiming.result(WAIT)
        hogging.result(WAIT)
    assert handle is not None
    assert "fresh" == handle.payload
    assert handle.ack()


def hog(store: Store) -> None:
    """Have the connection for longer than a lease."""
    with store.transaction() as tx:
        tx.execute("SELECT pg_sleep(1.2)")


def test_a_process_that_is_stopped_while_it_ripens_holds_others_up_for_a_while_only(
    open_store: Opener, door: Door
) -> None:
    """Its session is ended by the server, whatever the role's setting."""
    queue = open_store().queue("q")
    queue.enqueue("work", delay=0.05)
    lock = Statements(door.schema)[sql.LOCK_RIPENING]
    with psycopg.connect(door.connection.info.dsn, password=door.connection.info.password) as stopped:
        stopped.execute(lock, {"queue": "q"})
        door.do("SELECT pg_sleep(0.1)")  # the job is due
        assert "work" == claimed(queue).payload
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            stopped.execute("SELECT 1")
