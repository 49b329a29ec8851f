"""The end of a process: what was committed there has been rung, and what it had claimed and not given is there again."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import alkstore
from tests.integrations.conftest import place, postgres_database
from tests.integrations.places import Place

__all__ = ["place", "postgres_database"]

WAIT = 60.0
NEVER = 3_600
METHODS = multiprocessing.get_all_start_methods()
WAYS = [(method, "its own") for method in METHODS] + [(method, "inherited") for method in METHODS if method == "fork"]


@pytest.mark.parametrize(("method", "whose"), WAYS)
def test_a_process_of_multiprocessing_ends_as_others_do(method: str, whose: str, place: Place) -> None:
    """Z-14, J-6: those that are forked run nothing of ``atexit``'s. Nobody polls."""
    with alkstore.open(place.url, **place.options) as store:
        for _ in range(3):
            claimed = store.queue("claimed")
            claimed.enqueue_many(range(4))
            with ThreadPoolExecutor(1) as thread, store.queue("rung").consume("w", poll_interval=NEVER) as consumer:
                waiting = thread.submit(next, consumer)
                with pytest.raises(TimeoutError):
                    waiting.result(0.3)
                program = [sys.executable, "-m", "tests.engines.ending", method, whose, place.url]
                subprocess.run([*program, json.dumps(place.options)], check=True, timeout=WAIT)
                assert (1, 3) == (claimed.stats().processing, claimed.stats().ready)
                assert waiting.result(WAIT / 6).ack()
            claimed.purge(alkstore.State.PENDING)
            claimed.purge(alkstore.State.PROCESSING)
