"""What does a claim cost on PostgreSQL after many jobs were done while another session held a snapshot open, and afterwards?

Nothing that was deleted since the snapshot can be cleaned up while it is held. Ratios of 95th percentiles, to those before.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

import psycopg

from benchmarks.bench import Bench
from benchmarks.children import Child, ChildError
from benchmarks.questions.growth import READY, late
from benchmarks.system import System

_AUTOVACUUM: Final = (
    """SELECT coalesce(min(autovacuum_count), 0) FROM pg_stat_user_tables WHERE n_dead_tup + n_tup_del > 0"""
)
_LONGEST: Final = 180.0
_STEP: Final = 1_000


def rows(jobs: int) -> tuple[str, str]:
    """Return the rows' names."""
    return f"claim, snapshot held for {jobs:,}", "claim, snapshot released"


def ask(bench: Bench) -> None:
    """Measure it."""
    if bench.league.engine != "postgresql":
        return
    held, released = rows(bench.settings.snapshot)
    for system in bench.offering("claim_batches", "claim_times"):
        try:
            usual, slow, again = _one(bench, system)
        except ChildError as error:
            bench.keep(held, system, "x", note=str(error))
            continue
        bench.keep(held, system, "x", [slow / usual], f"{1_000 * usual:.2f} ms and {1_000 * slow:.2f} ms")
        how = "after autovacuum" if bench.settings.autovacuum else "after VACUUM"
        bench.keep(released, system, "x", [again / usual], how)


def _one(bench: Bench, system: type[System]) -> tuple[float, float, float]:
    with ExitStack() as stack:
        place = stack.enter_context(bench.places.new())
        child = stack.enter_context(Child(system, bench.systems[system]))
        child.open(place, bench.league.durability, create=True)
        child.run("fill", jobs=READY)
        late(child)
        usual = _median(child)
        with psycopg.connect(place) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT 1 FROM pg_class LIMIT 1")
            for _ in range(0, bench.settings.snapshot, _STEP):
                child.run("fill", jobs=_STEP)
                child.run("claim_batches", jobs=_STEP, batch=100)
            slow = _median(child)
            holder.rollback()
        with psycopg.connect(place, autocommit=True) as connection:
            if bench.settings.autovacuum:
                _await_autovacuum(connection)
            else:
                connection.execute("VACUUM")
        return usual, slow, _median(child)


def _median(child: Child) -> float:
    return sorted(late(child) for _ in range(3))[1]


def _await_autovacuum(connection: psycopg.Connection) -> None:
    """Wait until it has been to every table in which rows were deleted, or for three minutes."""
    deadline = time.monotonic() + _LONGEST
    while time.monotonic() < deadline:
        found = connection.execute(_AUTOVACUUM).fetchone()
        if found is not None and found[0] > 0:
            return
        time.sleep(1.0)
