"""The statements as texts: names, lengths, columns."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest

from alkstore.records import StatsRow
from alkstore.store import Store
from alkstore_postgres import sql
from alkstore_postgres.rows import COLUMNS
from tests.postgres.door import Door

STATEMENTS: dict[str, LiteralString] = {
    name: value for name, value in vars(sql).items() if name.isupper() and not name.startswith("_")
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_short_enough_for_the_driver_to_keep_what_it_parsed(name: str) -> None:
    """psycopg keeps its reading of a query of up to 4,096 bytes; a schema's name may take 63 of them each time."""
    assert len(sql.Statements("s" * 63)[STATEMENTS[name]]) <= 4096


@pytest.mark.parametrize("name", STATEMENTS)
def test_functions_and_types_are_qualified(name: str) -> None:
    """No search_path makes them mean something else."""
    text = re.sub(r"%\(\w+\)[sb]", "p", sql.Statements("s")[STATEMENTS[name]].decode())
    # A name with its bracket is a call (or keyword's), but for the column lists of r and w.
    called = {word.lower() for word in re.findall(r"(?<![\w.\"])(\w+)\(", text)}
    assert called <= {"array", "coalesce", "least", "extract", "r", "w"}
    keyword_types = {"bigint", "integer", "boolean", "double", "numeric"}  # of the grammar, not looked up
    assert set(re.findall(r"::(?!pg_catalog\.)(\w+)", text)) <= keyword_types


def test_rows_come_in_the_order_of_the_record(store: Store, door: Door) -> None:
    """``rows.job_row`` goes by position: the statements give the columns in ``JobRow``'s order, by ``JobRow``'s names."""
    statements = sql.Statements(door.schema)
    values = {"id": 1, "token": None, "queue": "q", "after": 0, "limit": 1, "held": False}
    for statement in (sql.RECALL, sql.GET, sql.LIST_LIVE, sql.LIST_DEAD, sql.LIST_ALL):
        described = door.connection.execute(statements[statement], values).description or []
        assert tuple(column.name for column in described) == COLUMNS
    values = {"queue": "q", "worker_id": "w", "count": 1, "bury": True, "now": None}
    described = door.connection.execute(statements[sql.CLAIM], values).description or []
    assert tuple(column.name for column in described) == ("now", "due", "lapsed", *COLUMNS)
    described = door.connection.execute(statements[sql.STATS], values).description or []
    assert tuple(column.name for column in described) == StatsRow._fields


def test_the_readable_view_of_results_shows_times_and_values(store: Store, door: Door) -> None:
    queue = store.queue("q")
    done, cancelled = queue.enqueue_many([1, 2], keep_result=1.5)
    assert [(timedelta(seconds=1.5),)] * 2 == door.ask("SELECT keep_result FROM {readable_jobs}")
    handle = queue.claim_one("w")
    assert handle is not None
    assert handle.ack(result={"a": "ä"})
    assert queue.cancel(cancelled)
    result = store.result(done)
    assert result is not None
    assert [(done, "succeeded", 1, "w", '{"a":"ä"}', 10, result.finished_at, result.expires_at)] == door.ask(
        "SELECT id, outcome, attempts, worker_id, result, result_bytes, finished_at, expires_at FROM {readable_results} "
        "WHERE outcome = 'succeeded'"
    )
    assert [(cancelled, 0, None, None)] == door.ask(
        "SELECT id, attempts, worker_id, result FROM {readable_results} WHERE outcome = 'cancelled'"
    )


def test_people_read_the_view(store: Store, door: Door) -> None:
    """Times as times, JSON as text, and bytes that aren't text as an escaped form, beside the rest."""
    queue = store.queue("naïve", max_attempts=1)
    queue.enqueue({"ü": "\u0000"}, priority=3)
    store.queue("naïve", codec="raw").enqueue(b"\xff\x00a\\")
    dead = store.queue("naïve").claim_one("w")
    assert dead is not None
    assert dead.fail("no")
    rows = door.ask("SELECT state, payload, codec, died_at > run_at, last_error FROM {readable_jobs} ORDER BY id")
    assert rows == [
        ("dead", '{"ü":"\\u0000"}', "json", True, "no"),
        ("pending", "\\377\\000a\\\\", "raw", None, None),
    ]
    job = store.get_job(2)
    assert job is not None
    assert door.ask("SELECT run_at, created_at FROM {readable_jobs} WHERE id = 2") == [(job.run_at, job.created_at)]


@pytest.mark.parametrize(
    "change",
    [
        "token = 5",
        "phase = 4",
        "phase = 1",
        "phase = 2",
        "phase = 3",
        "next_at = 1",
        "attempts = -1",
        "max_attempts = 0",
        "backoff_cap = 3601",
        "visibility_timeout = 0",
        "queue = ''",
        "payload = NULL",
    ],
)
def test_the_table_refuses_what_the_library_never_writes(store: Store, door: Door, change: LiteralString) -> None:
    store.queue("q").enqueue(1)
    with pytest.raises(psycopg.IntegrityError):
        door.do("UPDATE {jobs} SET " + change)
