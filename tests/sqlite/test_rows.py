"""Rows become records by the names of their columns."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite import executor, rows, sql
from tests.sqlite.support import pool_of, url_of


@pytest.mark.parametrize(
    ("columns", "table"), [(sql.LIVE_COLUMNS, "alkstore_jobs"), (sql.DEAD_COLUMNS, "alkstore_dead_jobs")]
)
def test_statements_give_the_records_columns_in_its_order(store: alkstore.Store, columns: str, table: str) -> None:
    units = pool_of(store).take()
    cursor: sqlite3.Cursor = units.execute(f"SELECT {columns} FROM {table}")
    assert rows.COLUMNS == tuple(column[0].lstrip("+") for column in cursor.description)
    pool_of(store).give(units)


def test_numbered_placeholders_take_values_by_name_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12.0 to 3.12.3 want them, which warn of the others; warnings are errors here."""
    monkeypatch.setattr(executor, "NUMBERED_BY_NAME", True)
    with alkstore.open(url_of(path)) as store:
        queue = store.queue("q")
        ids = [queue.enqueue("one"), *queue.enqueue_many(["two", "three"])]
        first = queue.claim_one("w")
        assert first is not None
        assert first.ack()
        assert [("two", ids[1]), ("three", ids[2])] == [(job.payload, job.id) for job in queue.claim_batch("w", 9)]
        assert 2 == queue.ack_batch(ids)
