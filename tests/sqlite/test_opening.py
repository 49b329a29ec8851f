"""Opening: what is in the way is named, and a store that is current asks for nothing (S-2, S-5)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite import engine as engine_module
from alkstore_sqlite import schema, sql
from alkstore_sqlite.location import Location
from alkstore_sqlite.pool import Pool
from contract_tests.scale import rounds
from tests.sqlite.conftest import Opener
from tests.sqlite.support import Program, back_door, is_sound, look, on_pool, url_of


def test_sixteen_processes_open_a_new_path_at_once(tmp_path: Path) -> None:
    programs = [Program("open_each") for _ in range(16)]
    try:
        for program in programs:
            assert "ready" == program.hear()
        for number in range(rounds(30)):
            path = tmp_path / f"{number}.db"
            for program in programs:
                program.tell(url_of(path))
            heard = [program.hear() for program in programs]
            assert [f"enqueued {job_id}" for job_id in range(1, 17)] == sorted(heard, key=lambda line: int(line[9:]))
            assert 16 == len(look(path, "SELECT DISTINCT payload FROM alkstore_jobs"))
            assert [1] == look(path, "SELECT count(*) FROM alkstore_schema_version")
            assert is_sound(path)
        for program in programs:
            program.tell("")
            program.finish()
    finally:
        for program in programs:
            program.__exit__(None, None, None)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(alkstore.EngineUnavailableError, match="no folder") as caught:
        alkstore.open(url_of(tmp_path / "missing" / "store.db"))
    assert str(tmp_path / "missing") in str(caught.value)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(alkstore.EngineUnavailableError, match="is a folder"):
        alkstore.open(url_of(tmp_path))


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(alkstore.EngineUnavailableError, match="no folder"):
        alkstore.open(url_of(tmp_path / "file" / "store.db"))


def test_a_link_into_a_missing_folder_is_named(path: Path) -> None:
    path.symlink_to(path.parent / "missing" / "store.db")
    with pytest.raises(alkstore.EngineUnavailableError, match="missing"):
        alkstore.open(url_of(path))


@pytest.mark.parametrize("migrate", [True, False])
def test_what_sqlite_cannot_open_is_unavailable(path: Path, migrate: bool) -> None:
    with pytest.raises(alkstore.EngineUnavailableError, match="-wal") as caught:
        alkstore.open(url_of(path.with_name("x" * 300)), migrate=migrate)
    assert "SQLITE_CANTOPEN" == getattr(caught.value.__cause__, "sqlite_errorname", None)


def test_a_log_that_cannot_be_made_is_unavailable(path: Path) -> None:
    Path(f"{path}-wal").mkdir()
    with pytest.raises(alkstore.EngineUnavailableError) as caught:
        alkstore.open(url_of(path))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    Path(f"{path}-wal").rmdir()
    alkstore.open(url_of(path)).close()


def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    content = b"Dear diary,\n" * 1_000
    path.write_bytes(content)
    with pytest.raises(alkstore.StoreCorruptError) as caught:
        alkstore.open(url_of(path))
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    with pytest.raises(alkstore.StoreCorruptError):
        alkstore.open(url_of(path), migrate=False)
    assert content == path.read_bytes()


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.touch()
    with alkstore.open(url_of(path)) as store:
        assert 1 == store.queue("q").enqueue(1)


def test_an_applications_database_keeps_its_tables(path: Path) -> None:
    with back_door(path) as connection:
        connection.execute("CREATE TABLE customers (name)")
        connection.execute("INSERT INTO customers VALUES ('Ada')")
    with alkstore.open(url_of(path), durability="relaxed") as store, store.transaction() as tx:
        tx.queue("q").enqueue(1)
        assert [("Ada",)] == tx.execute("SELECT name FROM customers").fetchall()


def test_without_migrate_an_absent_schema_is_refused_and_nothing_is_made(path: Path) -> None:
    with pytest.raises(alkstore.SchemaError, match="python -m alkstore migrate"):
        alkstore.open(url_of(path), migrate=False)
    assert not path.exists()
    with back_door(path) as connection:
        connection.execute("CREATE TABLE customers (name)")
    with pytest.raises(alkstore.SchemaError, match="python -m alkstore migrate"):
        alkstore.open(url_of(path), migrate=False)
    assert ["customers"] == look(path, "SELECT name FROM sqlite_master")


@pytest.mark.parametrize("found", ["an application's", "an older schema", "a newer schema"])
def test_a_file_that_is_refused_keeps_its_journal_mode_and_every_byte(
    path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    with back_door(path) as connection:
        connection.execute("CREATE TABLE customers (name)")
        if found != "an application's":
            connection.execute(sql.SCHEMA_CREATE)
            connection.execute(sql.SCHEMA_WRITE, (1, 0) if found == "an older schema" else (2, 0))
    monkeypatch.setattr(schema, "CODE_VERSION", (1, 9))
    before = path.read_bytes()
    assert b"\x01\x01" == before[18:20]  # a rollback journal, by SQLite's file format
    for migrate in (False, True) if found == "a newer schema" else (False,):
        with pytest.raises(alkstore.SchemaError):
            alkstore.open(url_of(path), migrate=migrate)
        assert before == path.read_bytes()
        assert [path.name] == [file.name for file in path.parent.iterdir()]


def test_a_current_schema_is_opened_while_somebody_writes(path: Path, store: alkstore.Store) -> None:
    store.queue("q").enqueue(1)
    with back_door(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with alkstore.open(url_of(path), lock_timeout=0) as other:
            assert 1 == other.queue("q").stats().ready
            assert other.get_job(1) is not None


def test_a_new_database_waits_for_whoever_writes(path: Path) -> None:
    with back_door(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(alkstore.EngineBusyError):
            alkstore.open(url_of(path), lock_timeout=0.1)
    alkstore.open(url_of(path)).close()


def test_an_applications_open_transaction_survives_the_opening_of_a_store_on_its_file(
    path: Path, store: alkstore.Store
) -> None:
    with back_door(path) as connection:
        connection.execute("CREATE TABLE customers (name)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO customers VALUES ('Ada')")
        alkstore.open(url_of(path)).close()
        store.close()
        connection.execute("COMMIT")
    assert ["Ada"] == look(path, "SELECT name FROM customers")


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("relaxed", 1)])
def test_durability_is_sqlites_synchronous(open_store: Opener, durability: str, synchronous: int) -> None:
    store = open_store(durability=durability)
    assert synchronous == on_pool(store, "PRAGMA synchronous")
    assert "wal" == on_pool(store, "PRAGMA journal_mode")
    assert durability == store.health().durability


def test_health_knows_the_log_and_the_versions(path: Path, store: alkstore.Store) -> None:
    before = store.health().wal_bytes
    store.queue("q").enqueue("x" * 100_000)
    health = store.health()
    assert before is not None
    assert health.wal_bytes is not None
    assert health.wal_bytes > 100_000
    assert (sqlite3.sqlite_version, schema.CODE_VERSION, schema.CODE_VERSION, 0.0) == (
        health.server_version,
        health.schema_version,
        health.code_version,
        health.clock_skew.total_seconds(),
    )


def test_a_file_system_without_shared_memory_is_refused(path: Path) -> None:
    """SQLite then answers the request for WAL with the mode that it stays with; so does a database in memory."""
    pool = Pool(Location(str(path)), engine_module.EngineOptions(migrate=True, durability="full", lock_timeout=0), 1)
    connection = sqlite3.connect(":memory:")
    with pytest.raises(alkstore.EngineUnavailableError, match="write-ahead log"):
        pool._use_wal(connection)
    connection.close()


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(alkstore.EngineUnavailableError, match=r"3\.35"):
        alkstore.open(url_of(path))
    assert not path.exists()
