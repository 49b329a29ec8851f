"""What the claim reads: a bounded number of rows, whatever lies in the table and whatever the planner believes.

The statement itself is explained, as the pool's sessions plan it: prepared, with a custom and with the generic plan.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Final, LiteralString, cast

import psycopg
import pytest

from alkstore.store import Store
from alkstore_postgres import sql
from alkstore_postgres.pool import PLANNING
from contract_tests.scale import rounds
from tests.postgres.door import Door, pool_of

ROWS: Final = max(100_000, rounds(1_000_000))
NOW: Final = 4_000_000_000_000_000
LATER: Final = 8_000_000_000_000_000

_FILL: LiteralString = """
    INSERT INTO {{jobs}} (
        queue, codec, payload, headers, priority, max_attempts, visibility_timeout, backoff_base, backoff_cap, created_at,
        run_at, phase, next_at, expires_at, token, lease_until, worker_id, attempts
    )
    SELECT '{queue}', 'json', '1', '{{{{}}}}', {priority}, 5, 60000000, 5, 3600, 1,
        {run_at}, {phase}, {next_at}, {expires_at}, {token}, {lease_until}, {worker_id}, {attempts}
    FROM generate_series(1, {count}) AS g
"""


def fill(door: Door, count: int, **columns: Any) -> None:
    """Insert so many rows past the library, as they would lie there at the instant ``NOW``."""
    plain: dict[str, Any] = {
        "queue": "q", "priority": 0, "run_at": 1, "phase": 0, "next_at": "NULL", "expires_at": "NULL", "token": "NULL",
        "lease_until": "NULL", "worker_id": "NULL", "attempts": 0,
    }  # fmt: skip
    door.do(cast(LiteralString, _FILL.format(count=count, **(plain | columns))))


def a_few_ready(door: Door) -> None:
    fill(door, 10)


def a_million_ready(door: Door) -> None:
    fill(door, ROWS)


def a_million_for_tomorrow_at_a_higher_priority(door: Door) -> None:
    fill(door, ROWS, priority=9, run_at=LATER, phase=1, next_at=LATER)
    a_few_ready(door)


def the_same_with_100_000_priorities(door: Door) -> None:
    fill(door, ROWS, priority="1 + g % 100000", run_at=LATER, phase=1, next_at=LATER)
    a_few_ready(door)


LEASED: Final = {"token": "g", "lease_until": LATER - 1, "worker_id": "'w'", "priority": 9}


def a_million_leased(door: Door) -> None:
    fill(door, ROWS, phase=1, next_at=LATER, attempts=1, **LEASED)
    a_few_ready(door)


def a_million_on_their_last_lease(door: Door) -> None:
    fill(door, ROWS, phase=2, attempts=5, **LEASED)
    a_few_ready(door)


def a_million_expired_and_not_swept(door: Door) -> None:
    fill(door, ROWS, priority=9, phase=3, expires_at=5)
    a_few_ready(door)


def a_million_in_other_queues(door: Door) -> None:
    fill(door, ROWS, queue="other")
    a_few_ready(door)


def a_million_dead(door: Door) -> None:
    a_few_ready(door)
    door.do(
        "INSERT INTO {dead_jobs} (id, created_at, run_at, died_at, visibility_timeout, priority, attempts, max_attempts,"
        " backoff_base, backoff_cap, queue, codec, headers, last_error, payload)"
        " SELECT g + 100, 1, 1, 1, 1, 9, 1, 1, 1, 1, 'q', 'json', '{{}}', 'no', '1' FROM generate_series(1, %s) AS g",
        ROWS,
    )


SCENES: Final = (
    a_million_ready,
    a_million_for_tomorrow_at_a_higher_priority,
    the_same_with_100_000_priorities,
    a_million_leased,
    a_million_on_their_last_lease,
    a_million_expired_and_not_swept,
    a_million_in_other_queues,
    a_million_dead,
)


def prepare(door: Door) -> Callable[[int], str]:
    """Prepare the claim as the server sees it, and return what executes it for so many jobs."""
    order: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    text = re.sub(r"%\((\w+)\)s", place, sql.Statements(door.schema)[sql.CLAIM].decode())
    types = {"now": "bigint", "queue": "text", "bury": "boolean", "count": "bigint", "worker_id": "text"}
    door.connection.execute(f"PREPARE claim ({', '.join(types[name] for name in order)}) AS {text}".encode())

    def execute(count: int) -> str:
        values = {"now": str(NOW), "queue": "'q'", "bury": "true", "count": str(count), "worker_id": "'w'"}
        return f"EXECUTE claim ({', '.join(values[name] for name in order)})"

    return execute


def plan_as_the_pool_does(door: Door) -> None:
    for name, value in PLANNING.items():
        door.connection.execute("SELECT set_config(%s, %s, false)", [name, value])


def explain(connection: psycopg.Connection[Any], statement: str) -> tuple[int, int]:
    """Run the statement, undo it, and return how many rows its scans visited and how many pages it touched."""
    with connection.transaction(force_rollback=True):
        row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}".encode()).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return _visited(plan), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def _visited(node: dict[str, Any]) -> int:
    visited = sum(_visited(child) for child in node.get("Plans", []))
    if "Relation Name" in node or "Index Name" in node:
        seen = (
            node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        )
        visited += round(node["Actual Loops"] * seen)
    return visited


@pytest.mark.parametrize("scene", SCENES)
def test_a_claim_visits_a_bounded_number_of_rows(store: Store, door: Door, scene: Callable[[Door], None]) -> None:
    """Whether the statistics are absent, of an empty table, or right; and as many as it hands out, times a constant."""
    plan_as_the_pool_does(door)
    door.do("ALTER TABLE {jobs} SET (autovacuum_enabled = off)")
    door.do("VACUUM ANALYZE {jobs}")
    execute = prepare(door)
    door.connection.execute(execute(1).encode())  # a generic plan made, and kept, while the table is empty
    scene(door)
    for statistics in ("of an empty table", "right"):
        if statistics == "right":
            door.do("ANALYZE {jobs}")
        for mode in ("force_generic_plan", "force_custom_plan"):
            door.connection.execute("SELECT set_config('plan_cache_mode', %s, false)", [mode])
            visited, touched = explain(door.connection, execute(1))
            assert visited <= 10, (statistics, mode)
            assert touched <= 200, (statistics, mode)
            visited, _ = explain(door.connection, execute(10))
            assert visited <= 60, (statistics, mode)


def test_the_pool_plans_as_explained_here(store: Store) -> None:
    """And the application's own statements in a transaction are planned by its own settings."""
    pool = pool_of(store)
    connection = pool.acquire()
    try:
        for name, value in PLANNING.items():
            assert connection.execute("SELECT current_setting(%s)", [name]).fetchone() == (value,)
    finally:
        pool.release(connection)
    with store.transaction() as tx:
        assert tx.execute("SHOW enable_seqscan").fetchone() == ("on",)
        assert tx.execute("SHOW plan_cache_mode").fetchone() == ("auto",)
        with tx.transaction():
            tx.execute("SELECT 1")
        assert tx.execute("SHOW enable_seqscan").fetchone() == ("on",)
        assert tx.queue("q").claim_one("w") is None


def test_a_claim_of_one_never_gives_two(store: Store, door: Door) -> None:
    """Q-CLAIM-1: 20,000 jobs, no ANALYZE, hash and merge joins off, 4 connections; each job once."""
    count = max(2_000, rounds(20_000))
    door.do("ALTER TABLE {jobs} SET (autovacuum_enabled = off)")
    queue = store.queue("q")
    queue.enqueue_many(range(count))
    got: list[list[int]] = [[] for _ in range(4)]
    sizes: set[int] = set()

    def work(mine: list[int]) -> None:
        while handles := queue.claim_batch("w", 1):
            sizes.add(len(handles))
            mine.append(handles[0].id)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == {1}
    assert sorted(job_id for mine in got for job_id in mine) == list(range(1, count + 1))
    assert door.ask("SELECT count(*), min(attempts), max(attempts) FROM {jobs}") == [(count, 1, 1)]
