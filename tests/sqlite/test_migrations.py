"""Migrations: whole or not at all, and never on a newer schema (S-2, Z-13)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite import schema
from tests.sqlite.conftest import Opener
from tests.sqlite.support import Program, back_door, is_sound, look, url_of

TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name LIKE 'alkstore%' ORDER BY name"
ALL = [
    "alkstore_dead_jobs",
    "alkstore_enqueue",
    "alkstore_jobs",
    "alkstore_notifications",
    "alkstore_readable_jobs",
    "alkstore_readable_results",
    "alkstore_results",
    "alkstore_schema_version",
]


def test_a_migration_that_fails_half_way_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = schema.statements

    def broken(file: str) -> Iterator[str]:
        statements = list(whole(file))
        yield from statements[: len(statements) // 2]
        yield "CREATE TABLE broken ("

    monkeypatch.setattr(schema, "statements", broken)
    with pytest.raises(alkstore.AlkstoreError):
        alkstore.open(url_of(path))
    assert [] == look(path, TABLES)
    monkeypatch.undo()
    with alkstore.open(url_of(path)) as store:
        assert 1 == store.queue("q").enqueue(1)
    assert ALL == look(path, TABLES)


def test_a_process_killed_half_way_leaves_nothing_and_holds_nobody_up(path: Path) -> None:
    with Program("migrate_half_way", url_of(path)) as program:
        assert "half way" == program.hear()
        assert [] == look(path, TABLES)
        program.kill()
    with alkstore.open(url_of(path), lock_timeout=10) as store:
        assert 1 == store.queue("q").enqueue(1)
    assert ALL == look(path, TABLES)
    assert is_sound(path)


def test_a_later_migration_starts_where_the_schema_stands(
    path: Path, store: alkstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queue("q").enqueue(1)
    store.close()
    whole = schema.statements
    stands, later = schema.CODE_VERSION, (1, schema.CODE_VERSION[1] + 1)
    monkeypatch.setattr(schema, "CODE_VERSION", later)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, schema.Migration("more.sql", later)))

    def statements(file: str) -> Iterator[str]:
        return iter(["CREATE TABLE alkstore_more (x)"]) if file == "more.sql" else whole(file)

    monkeypatch.setattr(schema, "statements", statements)
    with pytest.raises(alkstore.SchemaError, match=rf"1\.{stands[1]}.*python -m alkstore migrate"):
        alkstore.open(url_of(path), migrate=False)
    with alkstore.open(url_of(path)) as upgraded:
        assert later == upgraded.health().schema_version
        assert 1 == upgraded.queue("q").stats().ready
    assert "alkstore_more" in look(path, TABLES)


def test_a_newer_minor_is_opened_and_a_newer_major_never_touched(
    path: Path, store: alkstore.Store, open_store: Opener
) -> None:
    with back_door(path) as connection:
        connection.execute("UPDATE alkstore_schema_version SET minor = 7")
    assert (1, 7) == open_store().health().schema_version
    with back_door(path) as connection:
        connection.execute("UPDATE alkstore_schema_version SET major = 2")
    before = look(path, "SELECT sql FROM sqlite_master")
    for migrate in (True, False):
        with pytest.raises(alkstore.SchemaError, match="newer"):
            alkstore.open(url_of(path), migrate=migrate)
    assert before == look(path, "SELECT sql FROM sqlite_master")
    assert [2] == look(path, "SELECT major FROM alkstore_schema_version")


def test_a_current_schema_is_opened_without_a_write(path: Path, store: alkstore.Store) -> None:
    store.close()
    with back_door(path) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()
        alkstore.open(url_of(path)).close()
        assert before == connection.execute("PRAGMA data_version").fetchone()


def test_the_tables_refuse_what_they_can_see_is_wrong(path: Path, store: alkstore.Store) -> None:
    store.queue("q").enqueue(1)
    with back_door(path) as connection:
        for wrong in ("attempts = 6", "attempts = -1", "token = 5", "phase = 4", "phase = 1", "phase = 2", "phase = 3"):
            with pytest.raises(Exception, match="CHECK constraint failed"):
                connection.execute(f"UPDATE alkstore_jobs SET {wrong}")
        with pytest.raises(Exception, match="CHECK constraint failed"):
            connection.execute("UPDATE alkstore_jobs SET payload = 'text'")


def test_the_readable_view_shows_times_and_payloads(path: Path, store: alkstore.Store) -> None:
    store.queue("q").enqueue({"a": "ä"})
    store.queue("q", codec="raw").enqueue(b"\x00\xff")
    store.queue("q").enqueue("dead")
    for job in store.queue("q").claim_batch("w", 3)[2:]:
        job.fail("no")
    with back_door(path) as connection:
        rows = connection.execute(
            "SELECT id, state, payload, created_at, claim_expires_at, died_at, visibility_timeout, payload_bytes "
            "FROM alkstore_readable_jobs ORDER BY id"
        ).fetchall()
    assert [(1, "processing", '{"a":"ä"}'), (2, "processing", "x'00FF'"), (3, "dead", '"dead"')] == [
        row[:3] for row in rows
    ]
    record = store.get_job(1)
    assert record is not None
    assert record.claim_expires_at is not None
    assert record.created_at.isoformat(" ", "microseconds") == rows[0][3]
    assert record.claim_expires_at.isoformat(" ", "microseconds") == rows[0][4]
    assert rows[2][5] is not None
    assert [("00:01:00.000000", 10), ("00:01:00.000000", 2), ("00:01:00.000000", 6)] == [row[6:] for row in rows]


def test_the_readable_view_of_results_shows_times_and_values(path: Path, store: alkstore.Store) -> None:
    queue = store.queue("q")
    done, cancelled = queue.enqueue_many([1, 2], keep_result=1.5)
    handle = queue.claim_one("w")
    assert handle is not None
    assert handle.ack(result={"a": "ä"})
    assert queue.cancel(cancelled)
    with back_door(path) as connection:
        rows = connection.execute(
            "SELECT id, outcome, attempts, worker_id, result, result_bytes, finished_at, expires_at "
            "FROM alkstore_readable_results ORDER BY id"
        ).fetchall()
        with pytest.raises(Exception, match="CHECK constraint failed"):
            connection.execute("UPDATE alkstore_results SET payload = NULL WHERE outcome = 'succeeded'")
    assert [(done, "succeeded", 1, "w", '{"a":"ä"}', 10), (cancelled, "cancelled", 0, None, None, None)] == [
        row[:6] for row in rows
    ]
    result = store.result(done)
    assert result is not None
    assert result.expires_at is not None
    assert [result.finished_at.isoformat(" ", "microseconds"), result.expires_at.isoformat(" ", "microseconds")] == [
        *rows[0][6:]
    ]
