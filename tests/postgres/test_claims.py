"""The claim's parts, by the executor: ripening and burying in bounded units, and who waits for whom (Q-CLAIM-3 to 6)."""

from __future__ import annotations

from typing import Final

import pytest

from alkstore.records import ClaimRef, JobRow, NewJob
from alkstore.store import Store
from alkstore_postgres.executor import PostgresExecutor
from tests.postgres.door import Door

T0: Final = 1_700_000_000_000_000
SECOND: Final = 1_000_000


def job(
    number: int, *, priority: int = 0, run_at: int = T0, expires_in: int | None = None, max_attempts: int = 5
) -> NewJob:
    return NewJob(
        codec="json",
        payload=b"%d" % number,
        headers="{}",
        priority=priority,
        max_attempts=max_attempts,
        visibility_timeout=60 * SECOND,
        backoff_base=5,
        backoff_cap=3600,
        retention=None,
        run_at=run_at,
        run_at_is_offset=False,
        expires_in=expires_in,
    )


@pytest.fixture
def executor(store: Store) -> PostgresExecutor:
    found = store.engine.executor()
    assert isinstance(found, PostgresExecutor)
    return found


def claim(executor: PostgresExecutor, count: int, now: int, *, bury: int = 1_000, ripen: int = 5_000) -> list[JobRow]:
    """Claim, and return the rows."""
    batch = executor.claim("q", "w", count, "spent", bury, ripen, now)
    assert not batch.again
    return batch.rows


def ripens_only(executor: PostgresExecutor, now: int, *, ripen: int) -> bool:
    """Claim, and say whether the unit only readied what it may, and asks to be called again."""
    batch = executor.claim("q", "w", 1, "spent", 1_000, ripen, now)
    return batch.again and batch.rows == []


def test_ripening_is_bounded_and_keeps_the_order(executor: PostgresExecutor, door: Door) -> None:
    """No unit readies more than it may, and nothing is handed out before everything that is due is ready."""
    later = T0 + 10 * SECOND
    executor.insert("q", [job(n, priority=n, run_at=later) for n in range(5)] + [job(9)], T0)
    assert [row.priority for row in claim(executor, 1, T0)] == [0]
    seen: list[int] = []
    for _ in range(2):
        assert ripens_only(executor, later, ripen=2)
        seen.append(door.ask("SELECT count(*) FROM {jobs} WHERE phase = 0")[0][0])
    assert seen == [2, 4]
    assert [row.priority for row in claim(executor, 9, later, ripen=2)] == [4, 3, 2, 1, 0]


def test_burying_is_bounded_and_holds_nothing_up(executor: PostgresExecutor, door: Door) -> None:
    """Q-CLAIM-6: the oldest deadlines first, and what is left over is not handed out."""
    ids = executor.insert("q", [job(n, max_attempts=1) for n in range(4)], T0)
    for offset in (3, 1, 2, 0):
        assert len(claim(executor, 1, T0 + offset)) == 1  # so that job 1 has the latest deadline, and 4 the first
    (fresh,) = executor.insert("q", [job(9)], T0)
    late = T0 + 61 * SECOND
    assert [row.id for row in claim(executor, 9, late, bury=3)] == [fresh]
    assert door.dead() == set(ids[1:])
    assert claim(executor, 9, late, bury=0) == []
    assert door.dead() == set(ids[1:])
    assert claim(executor, 9, late, bury=3) == []
    assert door.dead() == set(ids)
    assert door.ask("SELECT DISTINCT last_error FROM {dead_jobs}") == [("spent",)]


def test_a_lapsed_job_that_somebody_holds_is_passed_over(executor: PostgresExecutor, store: Store, door: Door) -> None:
    """As by a transaction that is about to ack it. The claim neither waits, nor goes round in circles, nor hands it out."""
    executor.insert("q", [job(1, priority=9), job(2)], T0)
    (held,) = claim(executor, 1, T0)
    late = T0 + 61 * SECOND
    with door.connection.transaction():
        door.do("SELECT FROM {jobs} WHERE id = %s FOR UPDATE", held.id)
        assert [row.payload for row in claim(executor, 9, late)] == [b"2"]
        assert claim(executor, 9, late) == []
    assert [row.id for row in claim(executor, 9, late)] == [held.id]


def test_a_claim_in_a_transaction_ripens_and_buries_there(store: Store, executor: PostgresExecutor, door: Door) -> None:
    executor.insert("q", [job(1, max_attempts=1)], T0)
    (spent,) = claim(executor, 1, T0)
    executor.insert("q", [job(2, run_at=T0 + SECOND)], T0)
    late = T0 + 61 * SECOND
    inner = store.engine.begin()
    batch = inner.executor.claim("q", "w", 9, "spent", 10, 10, late)
    assert [row.payload for row in batch.rows] == [b"2"]
    assert door.dead() == set()
    inner.rollback()
    assert door.dead() == set()
    inner = store.engine.begin()
    inner.executor.claim("q", "w", 9, "spent", 10, 10, late)
    inner.commit()
    assert door.dead() == {spent.id}


def test_a_clock_that_steps_back_hands_out_nothing_too_early(executor: PostgresExecutor) -> None:
    """Q-CLAIM-4: what was readied by a later clock is judged by its own columns."""
    executor.insert("q", [job(1, run_at=T0 + SECOND), job(2)], T0)
    (leased,) = claim(executor, 1, T0)
    late = T0 + 61 * SECOND
    assert executor.claim("other", "w", 1, "spent", 1, 9, late).rows == []
    assert ripens_only(executor, late, ripen=1)  # readies one at a time, and picks none
    assert ripens_only(executor, late, ripen=1)
    assert claim(executor, 9, T0) == []
    assert executor.hold("q", ClaimRef(leased.id, leased.token), T0)
    assert [row.payload for row in claim(executor, 9, late)] == [b"2", b"1"]


def test_phases_follow_each_change(executor: PostgresExecutor, door: Door) -> None:
    """The rule at the top of sql.py, for what each operation leaves behind."""

    def phase(job_id: int) -> tuple[int, int | None]:
        return door.ask("SELECT phase, next_at FROM {jobs} WHERE id = %s", job_id)[0]

    ready, future, mortal = executor.insert(
        "q",
        [
            job(1, priority=3),
            job(2, run_at=T0 + 9 * SECOND, expires_in=5 * SECOND),
            job(3, expires_in=5 * SECOND, max_attempts=2),
        ],
        T0,
    )
    assert phase(ready) == (0, None)
    assert phase(future) == (1, T0 + 5 * SECOND)
    assert phase(mortal) == (0, T0 + 5 * SECOND)
    one, two = claim(executor, 9, T0)
    assert (one.id, two.id) == (ready, mortal)
    assert phase(ready) == (1, T0 + 60 * SECOND + 1)
    assert phase(mortal) == (1, T0 + 60 * SECOND + 1)
    executor.extend("q", [ClaimRef(one.id, one.token)], SECOND, T0)
    assert phase(ready) == (1, T0 + SECOND + 1)
    executor.extend("q", [ClaimRef(one.id, one.token), ClaimRef(two.id, two.token)], SECOND, T0)
    assert phase(mortal) == (1, T0 + SECOND + 1)
    late = T0 + 2 * SECOND
    (one, two) = claim(executor, 9, late)
    assert phase(mortal) == (2, None)
    assert phase(ready) == (1, late + 60 * SECOND + 1)
    executor.extend("q", [ClaimRef(two.id, two.token)], 2 * SECOND, late)
    assert phase(mortal) == (2, None)
    assert claim(executor, 9, T0 + 6 * SECOND) == []
    assert phase(future) == (3, None)
    assert door.dead() == {mortal}
    assert executor.revive("q", [mortal], late) == [mortal]
    assert phase(mortal) == (0, None)
