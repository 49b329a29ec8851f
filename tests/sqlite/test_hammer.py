"""Eight processes on one file, at full durability: no error, and everybody gets on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import alkstore
from contract_tests.scale import scale
from tests.conftest import REPORTED
from tests.sqlite.support import Program, is_sound, look, url_of

PROCESSES = 8


def test_eight_processes_hammer_one_file(path: Path, record_property: Callable[[str, object], None]) -> None:
    alkstore.open(url_of(path)).close()
    seconds = max(2.0, 10 * scale())
    with ExitStack() as stack:
        programs = [stack.enter_context(Program("hammer", url_of(path), seconds)) for _ in range(PROCESSES)]
        for program in programs:
            assert "ready" == program.hear()
        for program in programs:
            program.tell()
        results: list[tuple[int, float]] = [tuple(json.loads(program.finish()[0])) for program in programs]
    cycles = [done for done, _ in results]
    slowest = max(slow for _, slow in results)
    reported = f"{sum(cycles)} cycles in {seconds:g} s, {min(cycles)} to {max(cycles)} per process, slowest call {slowest:.3f} s"
    record_property(REPORTED, f"eight processes on one SQLite file: {reported}")
    # A process that is starved does next to nothing, while the others do all the more.
    assert min(cycles) >= sum(cycles) / PROCESSES / 5, cycles
    assert [0] == look(path, "SELECT count(*) FROM alkstore_dead_jobs")
    # Each cycle enqueues one and acks one, where it got one: the balance is what is left.
    assert look(path, "SELECT count(*) FROM alkstore_jobs")[0] <= PROCESSES
    assert is_sound(path)
