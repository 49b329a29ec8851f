"""The frozen clock stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from alkstore import ValidationError
from alkstore.store import Store
from alkstore.testing import FrozenClock

START = datetime(2031, 5, 6, 7, 8, 9, 123_457, tzinfo=UTC)


def test_it_stands_where_it_is_put_and_moves_by_what_it_is_told() -> None:
    clock = FrozenClock(START)
    assert START == clock() == clock() == clock.now
    assert START + timedelta(seconds=60.5) == clock.tick(60.5) == clock()
    assert START + timedelta(seconds=60.5, days=1) == clock.tick(timedelta(days=1)) == clock()
    assert START == clock.move_to(START) == clock()


def test_it_begins_now() -> None:
    before = datetime.now(UTC)
    clock = FrozenClock()
    assert before <= clock() <= datetime.now(UTC)
    assert clock() == clock()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FrozenClock(datetime(2031, 5, 6)),  # noqa: DTZ001 - that is what is wrong with it
        lambda: FrozenClock(START).move_to(cast(Any, 7)),
        lambda: FrozenClock(START).tick(-1),
        lambda: FrozenClock(START).tick(cast(Any, "1h")),
    ],
)
def test_what_is_no_instant_and_no_duration_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValidationError):
        wrong()


def test_a_store_goes_by_it(open_store: Callable[..., Store]) -> None:
    clock = FrozenClock(START)
    queue = open_store(clock=clock).queue("q", visibility_timeout=30)
    queue.enqueue(1, delay=3_600)
    assert queue.claim_one("w") is None
    clock.tick(3_599)
    assert queue.claim_one("w") is None
    clock.tick(1)
    handle = queue.claim_one("w")
    assert handle is not None
    assert START + timedelta(seconds=3_630) == handle.deadline
    clock.tick(31)
    assert not handle.ack()
