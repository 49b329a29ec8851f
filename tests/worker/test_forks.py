"""What a handler forks is no worker: it works on nothing, and heeds signals as any process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alkstore.store import Store
from tests.integrations.places import Place
from tests.worker.conftest import options_of
from tests.worker.programs import ROOT

PROGRAM = """
import json, multiprocessing, os, signal, sys
import alkstore


def handle(job):
    match job.payload:
        case "pool":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print("pool", *pool.map(abs, [-1, -2]), flush=True)
        case "process":
            child = multiprocessing.get_context("fork").Process(target=signal.pause)
            child.start()
            child.terminate()
            child.join()
            print("process", child.exitcode, flush=True)
        case how:
            child = os.fork()
            if not child:
                if how == "raise":
                    raise ValueError("the child's")
                if how == "exit":
                    sys.exit()
                return
            print(how, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    url, options, worker_options = json.loads(sys.argv[1])
    with alkstore.open(url, **options) as store:
        print("done", alkstore.Worker(store, {"q": handle}, **worker_options).run(until_idle=True).succeeded)
"""


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"processes": 1}], ids=["threads", "processes"])
@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (["pool"], ["pool 1 2"]),
        (["process"] * 10, ["process -15"] * 10),
        (["return", "raise", "exit"], ["return 1", "raise 1", "exit 0"]),
    ],
    ids=["a pool", "a process that is ended", "a child that comes back"],
)
def test_what_a_handler_forks_ends(
    place: Place, store: Store, tmp_path: Path, options: dict[str, Any], jobs: list[str], said: list[str]
) -> None:
    """By SIGTERM, and where it comes back out of the handler; each job is begun once, by the worker that has claimed it."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    store.queue("q").enqueue_many(jobs)
    process = subprocess.Popen(
        [sys.executable, str(script), json.dumps([place.url, options_of(place), options])],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.communicate()
    assert [*said, f"done {len(jobs)}"] == out.splitlines()
