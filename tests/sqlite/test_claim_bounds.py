"""A claim reads what it hands out, and little else, whatever else the tables hold.

Counted in steps of SQLite's own machine, and read off its plans; no timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite import sql
from alkstore_sqlite.engine import AutoCommit
from contract_tests.scale import rounds
from tests.sqlite.support import back_door, look, pool_of

MANY = 1_000_000
HUNDREDS = max(100_000, rounds(300_000))
DAY = 86_400_000_000

# The back door: rows by the hundred thousand, in one statement. :count is how many.
NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)"
STAMPS = "created_at, visibility_timeout, backoff_base, backoff_cap, codec, headers, payload, max_attempts"
VALUES = ":now, 60000000, 5, 3600, 'json', '{}', x'31', 5"
READY = (
    f"INSERT INTO alkstore_jobs (queue, phase, priority, run_at, {STAMPS}) "
    f"{NUMBERS} SELECT 'q', 0, 0, :now - n, {VALUES} FROM numbers"
)
TOMORROW = (
    f"INSERT INTO alkstore_jobs (queue, phase, next_at, priority, run_at, {STAMPS}) "
    f"{NUMBERS} SELECT 'q', 1, :now + {DAY} + n, 9, :now + {DAY} + n, {VALUES} FROM numbers"
)
TOMORROW_EACH = (
    f"INSERT INTO alkstore_jobs (queue, phase, next_at, priority, run_at, {STAMPS}) "
    f"{NUMBERS} SELECT 'q', 1, :now + {DAY} + n, 1 + n % 100000, :now + {DAY} + n, {VALUES} FROM numbers"
)
LEASED = (
    f"INSERT INTO alkstore_jobs (queue, phase, next_at, priority, run_at, attempts, token, lease_until, worker_id, {STAMPS}) "
    f"{NUMBERS} SELECT 'q', 1, :now + {DAY} + n, 9, :now - n, 1, n, :now + {DAY} + n - 1, 'w', {VALUES} FROM numbers"
)
LAST_LEASES = (
    f"INSERT INTO alkstore_jobs (queue, phase, priority, run_at, attempts, token, lease_until, worker_id, {STAMPS}) "
    f"{NUMBERS} SELECT 'q', 2, 9, :now - n, 5, n, :now + {DAY} + n, 'w', {VALUES} FROM numbers"
)
EXPIRED = (
    f"INSERT INTO alkstore_jobs (queue, phase, priority, run_at, expires_at, {STAMPS}) "
    f"{NUMBERS} SELECT 'q', 3, 9, :now - {DAY}, :now - n, {VALUES} FROM numbers"
)
OTHERS = (
    f"INSERT INTO alkstore_jobs (queue, phase, priority, run_at, {STAMPS}) "
    f"{NUMBERS} SELECT 'q' || (n % 3), 0, 9, :now - n, {VALUES} FROM numbers"
)
DEAD = (
    "INSERT INTO alkstore_dead_jobs (id, queue, priority, run_at, attempts, died_at, last_error, "
    f"{STAMPS}) {NUMBERS} SELECT 1000000000 + n, 'q', 9, :now - n, 5, :now, 'no', {VALUES} FROM numbers"
)


def steps(store: alkstore.Store, call: Callable[[], object]) -> int:
    """Return about how many steps SQLite's machine took for a call: how often it came by a place where it may stop."""
    pool = pool_of(store)
    units = pool.take()
    pool.give(units)
    count = 0

    def handler() -> int:
        nonlocal count
        count += 1
        return 0

    units.connection.set_progress_handler(handler, 1)
    call()
    units.connection.set_progress_handler(None, 1)
    assert count
    return count


def fill(path: Path, statement: str, count: int) -> None:
    with back_door(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(statement, {"count": count, "now": time.time_ns() // 1_000})


def ten_claims(store: alkstore.Store) -> list[int]:
    """Return the steps of ten claims, each of which gets a job."""
    queue = store.queue("q")

    def claim() -> None:
        assert queue.claim_one("w") is not None

    return [steps(store, claim) for _ in range(10)]


@pytest.fixture
def plain(tmp_path: Path) -> int:
    """Return the steps of a claim where ten jobs are ready, and nothing else is there."""
    path = tmp_path / "plain.db"
    with alkstore.open(f"sqlite:///{path}", durability="relaxed") as store:
        fill(path, READY, 10)
        return max(ten_claims(store))


@pytest.mark.parametrize(
    ("statements", "count"),
    [
        pytest.param([READY], MANY, id="ready"),
        pytest.param([TOMORROW], MANY, id="tomorrow, at a higher priority"),
        pytest.param([TOMORROW_EACH], MANY, id="tomorrow, at 100,000 higher priorities"),
        pytest.param([LEASED, LAST_LEASES], HUNDREDS, id="leased"),
        pytest.param([EXPIRED], HUNDREDS, id="expired and not swept"),
        pytest.param([DEAD, OTHERS], HUNDREDS, id="dead, and in other queues"),
    ],
)
def test_a_claim_reads_no_more_for_what_it_does_not_hand_out(
    path: Path, store: alkstore.Store, plain: int, statements: list[str], count: int
) -> None:
    for statement in statements:
        fill(path, statement, count)
    fill(path, READY, 10)
    counted = ten_claims(store)
    assert max(counted) <= plain + 10, (plain, counted)


def test_expired_jobs_are_put_aside_once_and_then_cost_nothing(path: Path, store: alkstore.Store, plain: int) -> None:
    """Those that expire while they are ready are met by the claim: in bounded bites, and never again after that."""
    fill(
        path,
        READY.replace("phase,", "phase, next_at, expires_at,").replace("0, 0, :now - n", "0, :now, :now, 9, :now - n"),
        HUNDREDS,
    )
    fill(path, READY, 10)
    queue = store.queue("q")
    assert queue.claim_one("w") is not None
    with back_door(path) as connection:
        assert (HUNDREDS,) == connection.execute("SELECT count(*) FROM alkstore_jobs WHERE phase = 3").fetchone()
    fill(path, READY, 10)
    assert max(ten_claims(store)) <= plain + 10


def test_a_clock_that_steps_back_over_an_expiry_finds_the_job_claimable_again(path: Path) -> None:
    """What was set aside as expired is what statistics call ready, and is handed out in its place (Q-CLAIM-3)."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    start, second = now[0], timedelta(seconds=1)
    with alkstore.open(f"sqlite:///{path}", durability="relaxed", clock=lambda: now[0]) as store:
        queue = store.queue("q", visibility_timeout=5)
        queue.enqueue("pending", expires=10)
        queue.enqueue("later", expires=10, delay=2, priority=1)
        queue.enqueue("leased", expires=10, priority=2)
        assert queue.claim_one("w") is not None
        now[0] = start + 20 * second
        assert queue.claim_one("w") is None
        assert [3] * 3 == look(path, "SELECT phase FROM alkstore_jobs")
        now[0] = start + second
        assert (1, 1, 1) == (queue.stats().ready, queue.stats().scheduled, queue.stats().processing)
        assert ["pending"] == [job.payload for job in queue.claim_batch("w", 9)]
        now[0] = start + 7 * second
        assert ["leased", "later", "pending"] == [job.payload for job in queue.claim_batch("w", 9)]


def test_setting_back_is_bounded_and_ends(path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with alkstore.open(f"sqlite:///{path}", durability="relaxed", clock=lambda: now[0]) as store:
        queue, start = store.queue("q"), now[0]
        queue.enqueue_many(range(50), expires=10)
        now[0] = start + timedelta(seconds=20)
        assert queue.claim_one("w") is None
        now[0] = start
        executor, micros = AutoCommit(pool_of(store)), int(start.timestamp()) * 1_000_000
        batches = [executor.claim("q", "w", 50, "spent", 10, 20, micros) for _ in range(3)]
        assert [(0, True), (0, True), (50, False)] == [(len(rows), again) for rows, again in batches]


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (sql.CLAIM_DUE, "alkstore_jobs_timer (queue=? AND next_at<?)"),
        (sql.CLAIM_EARLY, "alkstore_jobs_expired (queue=? AND expires_at>?)"),
        (sql.CLAIM_SPENT, "alkstore_jobs_last (queue=? AND lease_until<?)"),
        (sql.CLAIM_PICK, "alkstore_jobs_ready (queue=?)"),
        (sql.SWEEP_EXPIRED, "alkstore_jobs_expiry (queue=? AND expires_at<?)"),
        (sql.SWEEP_RETIRED, "alkstore_dead_jobs_purge (queue=? AND purge_at<?)"),
        (sql.RESULTS_OVER, "alkstore_results_expiry (queue=? AND expires_at<?)"),
    ],
)
@pytest.mark.parametrize("analyzed", [False, True])
def test_each_probe_walks_its_index_and_sorts_nothing(
    path: Path, store: alkstore.Store, statement: str, index: str, analyzed: bool
) -> None:
    store.queue("q").enqueue_many(range(50))
    with back_door(path) as connection:
        if analyzed:
            connection.execute("ANALYZE")
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement, {"1": "q", "2": 1, "3": 1})]
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH ")
    assert plan[0].replace("COVERING ", "").endswith("USING INDEX " + index)


def test_naming_queues_steps_from_queue_to_queue(path: Path, store: alkstore.Store) -> None:
    everything = (OTHERS, READY, TOMORROW, LEASED, LAST_LEASES, EXPIRED)
    for statement in (*everything, DEAD):
        fill(path, statement, 10)
    few = steps(store, store.queues)
    for statement in everything:
        fill(path, statement, 10_000)
    assert ["q", "q0", "q1", "q2"] == store.queues()
    assert steps(store, store.queues) <= few
