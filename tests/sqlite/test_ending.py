"""A consumer that is ended on top of a call that has the write lock (W-4)."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

import alkstore
from alkstore_sqlite.executor import Units
from tests.sqlite.support import url_of
from tests.support.waiting import wait_until

PATIENCE = 25.0


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("unit", ["ack", "claim"])
def test_whoever_has_the_write_lock_does_not_wait_for_it(
    how: str, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It returns at once, and what wasn't given is there again once the call is over."""
    whole = getattr(Units, unit)
    with alkstore.open(url_of(tmp_path / "jobs.db"), lock_timeout=PATIENCE) as store:
        queue = store.queue("a")
        queue.enqueue_many(range(5))
        held = [queue.consume("w", batch=4)]
        handle = next(held[0])
        took: list[float] = []

        def interrupted(*args: Any) -> Any:
            start = time.monotonic()
            for each in held if how == "close" else []:
                each.close()
            held.clear()
            took.append(time.monotonic() - start)
            return whole(*args)

        monkeypatch.setattr(Units, unit, interrupted)
        with caplog.at_level(logging.INFO, "alkstore"):
            assert handle.ack() if unit == "ack" else queue.claim_one("other")
        monkeypatch.undo()
        assert took[0] < PATIENCE / 2
        wait_until(lambda: queue.stats().ready == (4 if unit == "ack" else 3), PATIENCE / 2, "what was given back")
        assert [] == caplog.records


def test_closing_the_store_waits_for_what_is_still_to_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't left to lapse."""
    url = url_of(tmp_path / "jobs.db")
    whole = Units.ack
    with alkstore.open(url) as store:
        queue = store.queue("a")
        queue.enqueue_many(range(4))
        consumer = queue.consume("w", batch=4)
        handle = next(consumer)

        def interrupted(*args: Any) -> Any:
            consumer.close()
            return whole(*args)

        monkeypatch.setattr(Units, "ack", interrupted)
        assert handle.ack()
    with alkstore.open(url) as store:
        assert 3 == store.queue("a").stats().ready
