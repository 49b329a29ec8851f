"""The doorbell: one thread, rings together, and none dropped (Q-ENQ-4, Z-14)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import pytest

from alkstore.doorbell import Doorbell
from alkstore.errors import EngineUnavailableError
from contract_tests.interrupting import on_top_of


class Bell:
    """What is rung, and fails to be where it is told."""

    def __init__(self) -> None:
        self.rung: list[tuple[dict[str, int], bool]] = []
        self.fails = False
        self.doorbell = Doorbell(self)

    def __call__(self, rings: Mapping[str, int], *, notified: bool) -> None:
        if self.fails:
            raise EngineUnavailableError("not there")
        self.rung.append((dict(rings), notified))

    @property
    def total(self) -> int:
        return sum(rings.get("a", 0) for rings, _ in self.rung)


def no_threads(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_rings_go_out_together_and_none_is_dropped() -> None:
    """The first at once, and those that come while nothing can go out."""
    bell = Bell()
    for _ in range(5_000):
        bell.doorbell.ring({"a": 1}, notified=False)
    bell.doorbell.ring({}, notified=True)
    bell.doorbell.flush()
    assert 5_000 == bell.total
    assert bell.rung[-1][1]
    assert len(bell.rung) < 1_000


def test_without_a_thread_nothing_waits_and_a_later_ring_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be rung meanwhile goes out with it, and memory stays bounded."""
    bell = Bell()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        for _ in range(10_000):
            bell.doorbell.ring({"a": 1}, notified=False)
        bell.doorbell.flush()
        assert [] == bell.rung
        assert len(bell.doorbell._asked) <= 1_001
    bell.doorbell.ring({"a": 1}, notified=False)
    bell.doorbell.flush()
    assert [({"a": 10_001}, False)] == bell.rung


def test_a_ring_that_fails_is_said_once_and_the_next_goes_out(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits polls meanwhile."""
    bell = Bell()
    bell.fails = True
    with caplog.at_level(logging.WARNING, "alkstore"):
        for _ in range(3):
            bell.doorbell.ring({"a": 1}, notified=False)
            bell.doorbell.flush()
    assert 1 == len(caplog.records)
    bell.fails = False
    bell.doorbell.ring({"a": 1}, notified=False)
    bell.doorbell.flush()
    assert 1 == bell.total


def test_it_may_be_rung_on_top_of_being_rung() -> None:
    """At each step, by a handler or the collector: both rings go out."""
    bell = Bell()
    bell.doorbell.ring({"a": 1}, notified=False)
    rung, step = 1, 0
    while True:
        with on_top_of(step, lambda: bell.doorbell.ring({"a": 1}, notified=False)) as steps:
            bell.doorbell.ring({"a": 1}, notified=False)
        if steps.taken <= step:
            break
        rung += 2
        step += 1
    bell.doorbell.flush()
    assert rung + 1 == bell.total
    assert step > 10
