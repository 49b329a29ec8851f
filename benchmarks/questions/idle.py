"""How much of a processor does an idle worker cost, its server's share included?"""

from __future__ import annotations

import time

from benchmarks.bench import Bench
from benchmarks.children import ChildError

ROW = "idle worker, of a core"
_LONGEST = 30.0


def ask(bench: Bench) -> None:
    """Measure it, after one job has been done."""
    for system in bench.offering("work", "enqueue"):
        try:
            with bench.group(system, 2) as (waiting, enqueueing):
                waiting.tell({"do": "work", "expected": None, "best": False, "tell": True})
                enqueueing.run("enqueue", jobs=1, first=1)
                while waiting.hear(_LONGEST).get("heard") != 1:
                    pass
                time.sleep(0.5)  # what it does after a job is no idling yet
                server = bench.server_spent()
                spent = waiting.ask({"do": "spent"})["spent"]
                begun = time.monotonic()
                time.sleep(bench.settings.idle)
                spent = waiting.ask({"do": "spent"})["spent"] - spent
                after = bench.server_spent()
                seconds = time.monotonic() - begun
                waiting.tell({"do": "stop"})
                waiting.answer()
        except ChildError as error:
            bench.keep(ROW, system, "%", note=str(error))
            continue
        servers = 0.0 if server is None or after is None else after - server
        note = f"{100 * servers / seconds:.2f} % of it the server's" if server is not None else ""
        bench.keep(ROW, system, "%", [100 * (spent + servers) / seconds], note)
