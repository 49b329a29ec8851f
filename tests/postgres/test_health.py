"""What health() says of a PostgreSQL store (Q-8)."""

from __future__ import annotations

from datetime import timedelta

from alkstore.store import Store
from tests.postgres.door import Door


def test_versions_clock_and_log(store: Store, door: Door) -> None:
    health = store.health()
    assert health.engine == "postgresql"
    assert health.server_version.startswith(str(door.connection.info.server_version // 10000))
    assert health.schema_version == health.code_version
    assert abs(health.clock_skew) < timedelta(seconds=30)
    assert health.wal_bytes is not None
    assert health.wal_bytes > 0


def test_a_snapshot_that_is_held_open_is_seen(store: Store, door: Door) -> None:
    """It is what keeps dead rows from being cleaned up. The library's own sessions hold none."""
    store.queue("q").enqueue(1)
    assert store.health().oldest_snapshot_age is None
    door.do("BEGIN ISOLATION LEVEL REPEATABLE READ")
    door.do("SELECT 1")
    door.do("SELECT pg_sleep(0.05)")
    age = store.health().oldest_snapshot_age
    door.do("COMMIT")
    assert age is not None
    assert timedelta(seconds=0.05) <= age < timedelta(minutes=5)
