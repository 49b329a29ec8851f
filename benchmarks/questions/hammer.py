"""What do eight processes get done that all enqueue, claim and ack as fast as they can, and what do they suffer?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.children import ChildError

PROCESSES = 8
CYCLES = f"{PROCESSES} processes, cycles"
LONGEST = f"{PROCESSES} processes, slowest"
ERRORS = f"{PROCESSES} processes, errors"


def ask(bench: Bench) -> None:
    """Measure it, once for each system."""
    for system in bench.offering("cycle"):
        try:
            with bench.group(system, PROCESSES) as group:
                for child in group:
                    child.run("cycle")
                for child in group:
                    child.tell({"do": "time", "operation": "cycle", "arguments": {}, "seconds": bench.settings.hammer})
                answers = [child.answer() for child in group]
        except ChildError as error:
            bench.keep(CYCLES, system, "/s", note=str(error))
            continue
        each = [answer["done"] for answer in answers]
        rates = sum(answer["done"] / answer["seconds"] for answer in answers)
        failures = {failure for answer in answers for failure in answer["failures"]}
        bench.keep(CYCLES, system, "/s", [rates], f"{min(each):,} to {max(each):,} each")
        bench.keep(LONGEST, system, "ms", [1_000 * max(answer["longest"] for answer in answers)])
        bench.keep(ERRORS, system, "", [sum(answer["errors"] for answer in answers)], "; ".join(sorted(failures)[:2]))
