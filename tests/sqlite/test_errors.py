"""SQLite's errors come out as alkstore's, by their codes, and the store works again after (S-5)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import alkstore
from alkstore.records import BuryRef, ClaimRef, ReleaseRef, RetryRef
from alkstore_sqlite import executor as executor_module
from alkstore_sqlite.engine import AutoCommit
from alkstore_sqlite.errors import translate
from alkstore_sqlite.executor import Units
from tests.sqlite.support import is_sound, look, on_pool, pool_of, url_of


def failure(name: str) -> sqlite3.Error:
    """Return the driver's exception for a result code."""
    exc = sqlite3.OperationalError("what it says is not looked at")
    exc.sqlite_errorcode = getattr(sqlite3, name)
    exc.sqlite_errorname = name
    return exc


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SQLITE_BUSY", alkstore.EngineBusyError),
        ("SQLITE_BUSY_RECOVERY", alkstore.EngineBusyError),
        ("SQLITE_BUSY_SNAPSHOT", alkstore.EngineBusyError),
        ("SQLITE_LOCKED", alkstore.EngineBusyError),
        ("SQLITE_LOCKED_SHAREDCACHE", alkstore.EngineBusyError),
        ("SQLITE_PROTOCOL", alkstore.EngineBusyError),
        ("SQLITE_FULL", alkstore.StorageFullError),
        ("SQLITE_CORRUPT", alkstore.StoreCorruptError),
        ("SQLITE_CORRUPT_INDEX", alkstore.StoreCorruptError),
        ("SQLITE_NOTADB", alkstore.StoreCorruptError),
        ("SQLITE_CANTOPEN", alkstore.EngineUnavailableError),
        ("SQLITE_READONLY_DBMOVED", alkstore.EngineUnavailableError),
        ("SQLITE_PERM", alkstore.EngineUnavailableError),
        ("SQLITE_IOERR_WRITE", alkstore.EngineUnavailableError),
        ("SQLITE_NOMEM", alkstore.EngineUnavailableError),
        ("SQLITE_INTERRUPT", alkstore.EngineBusyError),
        ("SQLITE_ERROR", alkstore.SchemaError),
        ("SQLITE_TOOBIG", alkstore.PayloadError),
        ("SQLITE_CONSTRAINT_CHECK", alkstore.EngineError),
        ("SQLITE_INTERNAL", alkstore.EngineError),
    ],
)
def test_codes_become_errors(name: str, expected: type[Exception]) -> None:
    assert expected is type(translate(failure(name), "sqlite:///x"))


def test_only_an_io_error_of_the_commit_itself_leaves_the_outcome_open() -> None:
    assert isinstance(translate(failure("SQLITE_IOERR_FSYNC"), "x", at_commit=True), alkstore.OutcomeUnknownError)
    assert isinstance(translate(failure("SQLITE_FULL"), "x", at_commit=True), alkstore.StorageFullError)
    assert isinstance(translate(failure("SQLITE_BUSY"), "x", at_commit=True), alkstore.EngineBusyError)


def test_errors_of_the_driver_itself_are_engine_errors() -> None:
    assert alkstore.EngineError is type(translate(sqlite3.ProgrammingError("closed"), "x"))
    assert alkstore.ValidationError is type(translate(OverflowError("too large"), "x"))
    assert alkstore.EngineUnavailableError is type(translate(MemoryError(), "x"))


def test_sqlite_without_memory_is_unavailable_and_nothing_happened(store: alkstore.Store) -> None:
    """The driver reports SQLITE_NOMEM by Python's own MemoryError."""

    def fail(units: Units) -> None:
        units.execute("DELETE FROM alkstore_jobs")
        raise MemoryError

    store.queue("q").enqueue(1)
    executor = AutoCommit(pool_of(store))
    with pytest.raises(alkstore.EngineUnavailableError) as caught:
        executor.write(fail)
    assert isinstance(caught.value.__cause__, MemoryError)
    assert 1 == store.queue("q").stats().ready
    assert 2 == store.queue("q").enqueue(2)


def fill_disk(store: alkstore.Store, *, room: bool = False) -> None:
    """Let the file grow no further, as on a full disk, or let it grow again."""
    pages = on_pool(store, "PRAGMA page_count")
    on_pool(store, f"PRAGMA max_page_count = {pages + 100_000 if room else pages}")


def test_a_full_disk_is_reported_and_nothing_happened(path: Path, store: alkstore.Store) -> None:
    queue = store.queue("q")
    queue.enqueue("small")
    fill_disk(store)
    for call in (lambda: queue.enqueue("x" * 100_000), lambda: queue.enqueue_many(["x" * 1_000] * 500)):
        with pytest.raises(alkstore.StorageFullError) as caught:
            call()
        assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert 1 == queue.stats().ready
    fill_disk(store, room=True)
    assert 2 == queue.enqueue("x" * 100_000)
    assert is_sound(path)


def test_a_disk_that_fills_up_while_a_job_is_buried_leaves_it_alive(path: Path, store: alkstore.Store) -> None:
    queue = store.queue("q", codec="raw", max_attempts=1)
    queue.enqueue(b"x" * 50_000)
    job = queue.claim_one("w")
    assert job is not None
    on_pool(store, "VACUUM")  # no free pages left
    fill_disk(store)
    for call in (lambda: job.fail("no"), lambda: job.retry("no")):
        with pytest.raises(alkstore.StorageFullError):
            call()
    assert [1] == look(path, "SELECT count(*) FROM alkstore_jobs")
    assert [0] == look(path, "SELECT count(*) FROM alkstore_dead_jobs")
    fill_disk(store, room=True)
    assert job.fail("no")


def test_a_disk_that_fills_up_in_a_transaction_leaves_nothing_of_it(store: alkstore.Store) -> None:
    queue = store.queue("q")
    queue.enqueue("small")
    fill_disk(store)

    def work() -> None:
        with store.transaction() as tx:
            tx.queue("q").enqueue("fits")
            with pytest.raises(alkstore.StorageFullError):
                tx.queue("q").enqueue("x" * 100_000)
            tx.queue("q").enqueue("refused: half of what was asked for must not be committed")

    with pytest.raises(alkstore.TransactionError):
        work()
    assert 1 == queue.stats().ready
    fill_disk(store, room=True)
    with store.transaction() as tx:
        tx.queue("q").enqueue("x" * 100_000)
    assert 2 == queue.stats().ready


def test_a_database_that_cannot_be_written_is_unavailable_and_can_be_read(store: alkstore.Store) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    on_pool(store, "PRAGMA query_only = ON")
    with pytest.raises(alkstore.EngineUnavailableError) as caught:
        queue.enqueue(2)
    assert "SQLITE_READONLY" == getattr(caught.value.__cause__, "sqlite_errorname", None)
    assert 1 == queue.stats().ready
    assert 2 == queue.enqueue(2)  # the connection was given up, and another one writes


def test_a_damaged_file_is_reported(path: Path, store: alkstore.Store) -> None:
    store.queue("q").enqueue_many(["x" * 500] * 200)
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(alkstore.StoreCorruptError) as caught, alkstore.open(url_of(path)) as damaged:
        damaged.queue("q").claim_one("w")
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


def test_a_dropped_table_is_a_matter_of_the_schema(path: Path, store: alkstore.Store) -> None:
    look(path, "DROP TABLE alkstore_jobs")
    for call in (lambda: store.queue("q").enqueue(1), lambda: store.queue("q").stats()):
        with pytest.raises(alkstore.SchemaError, match="python -m alkstore migrate"):
            call()


def test_ids_past_64_bits_are_simply_not_there(store: alkstore.Store) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    for job_id in (2**63, 2**64, 10**30, -1, -(2**63) - 1, 0):
        assert queue.get_job(job_id) is None
        assert store.get_job(job_id) is None
        assert not queue.cancel(job_id)
        assert not queue.retry_dead(job_id)
        assert 0 == queue.ack_batch([job_id])
    assert [] == queue.jobs(after=2**63)
    assert [] == queue.jobs(after=10**30)
    assert 1 == len(queue.jobs(after=-(10**30)))
    assert [1] == [job.id for job in queue.claim_batch("w", 10**6)]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_nothing_is_empty(store: alkstore.Store, limit: int) -> None:
    store.queue("q").enqueue(1)
    assert [] == AutoCommit(pool_of(store)).list("q", None, 0, limit)


def test_a_drawn_token_is_never_the_one_that_means_none(store: alkstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "urandom", bytes)
    queue = store.queue("q")
    queue.enqueue_many(range(3))
    assert [1, 1, 1] == [job.token for job in [*queue.claim_batch("w", 2), *queue.claim_batch("w", 1)]]


@pytest.mark.parametrize("token", [2**63, 10**30, -1, 0])
def test_tokens_that_cannot_be_are_refused_like_any_other(store: alkstore.Store, token: int) -> None:
    """The front may refuse them by itself; the engine must not stumble."""
    executor = AutoCommit(pool_of(store))
    for job_id in (1, 2**63):
        refs = [ClaimRef(job_id, token)]
        assert [] == executor.ack("q", refs, None)
        assert {} == executor.extend("q", refs, None, None)
        assert executor.recall("q", refs[0]) is None
        assert not executor.conclude("q", refs[0])
        assert [] == executor.retry("q", [RetryRef(job_id, token, 0, None)], "spent", None)
        assert [] == executor.bury("q", [BuryRef(job_id, token, "no")], None)
        assert [] == executor.release("q", [ReleaseRef(job_id, token, None)], None)


def test_the_applications_own_errors_come_out_bare(store: alkstore.Store) -> None:
    with store.transaction() as tx:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            tx.execute("SELECT * FROM nowhere")
        tx.queue("q").enqueue("a failed statement aborts no SQLite transaction")
    assert 1 == store.queue("q").stats().ready
