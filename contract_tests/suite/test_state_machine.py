"""An engine and the model, driven side by side through whatever Hypothesis thinks of (Q-7, Z-16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import run_state_machine_as_test as _run  # pyright: ignore[reportUnknownVariableType] - untyped

from alkstore.protocols import Store
from contract_tests.clauses import clause
from contract_tests.harness import Harness
from contract_tests.machines import Ground, StoreMachine, UnsteadyClockMachine
from contract_tests.scale import examples
from contract_tests.travel import Clock


def drive(machine: Callable[[], RuleBasedStateMachine], runs: int) -> None:
    """Run a state machine: so many runs at scale 1, of at most 40 steps each."""
    _run(cast(Any, machine), settings=settings(examples(runs), stateful_step_count=40))


@clause("Q-7", "Z-16", "Q-CLAIM-3", "Q-CLAIM-4", "Q-CLAIM-6", "J-1", "J-8")
def test_an_engine_and_the_model_agree_after_every_step(
    harness: Harness, place: str, store: Store, clock: Clock
) -> None:
    """Whatever the order of operations, every answer and every row is the model's, in and out of transactions."""
    ground = Ground(harness, place, store, clock)
    drive(lambda: StoreMachine(ground), 300)


@clause("Q-7", "Q-CLAIM-4", "J-1")
def test_an_engine_and_the_model_agree_while_the_clock_steps_back(
    harness: Harness, place: str, store: Store, clock: Clock
) -> None:
    """A clock that is put back makes nothing claimable that isn't due, and leaves every job in one place."""
    ground = Ground(harness, place, store, clock)
    drive(lambda: UnsteadyClockMachine(ground), 100)
