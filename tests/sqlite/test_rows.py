"""Rows become records by the names of their columns."""

from __future__ import annotations

import sqlite3

import pytest

import alkstore
from alkstore_sqlite import rows, sql
from tests.sqlite.support import pool_of


@pytest.mark.parametrize(
    ("columns", "table"), [(sql.LIVE_COLUMNS, "alkstore_jobs"), (sql.DEAD_COLUMNS, "alkstore_dead_jobs")]
)
def test_statements_give_the_records_columns_in_its_order(store: alkstore.Store, columns: str, table: str) -> None:
    units = pool_of(store).take()
    cursor: sqlite3.Cursor = units.execute(f"SELECT {columns} FROM {table}")
    assert rows.COLUMNS == tuple(column[0] for column in cursor.description)
    pool_of(store).give(units)
