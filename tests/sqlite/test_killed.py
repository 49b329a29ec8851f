"""A process that dies at any moment takes nothing with it that was acknowledged (Q-ENQ-1, J-8, Q-7)."""

from __future__ import annotations

import random
from pathlib import Path

import alkstore
from contract_tests.scale import rounds
from tests.sqlite.support import Program, back_door, is_sound, url_of

GONE = {"ack", "cancel"}


def test_a_killed_writer_loses_no_acknowledged_job_and_halves_none(path: Path) -> None:
    dice = random.Random()
    for number in range(rounds(50)):
        seed = f"{number} {dice.random()}"
        with Program("write_until_killed", url_of(path), seed) as program:
            assert "ready" == program.hear()
            said = [program.hear() for _ in range(dice.randint(1, 150))]
            said += program.kill()
        enqueued, begun, done = set[int](), dict[int, str](), dict[int, str]()
        for line in said:
            word, *rest = line.split()
            if word == "enqueued":
                enqueued.update(map(int, rest))
            elif len(rest) == 2 and rest[1].isdigit():  # the last line may have been cut off
                (begun if word == "will" else done)[int(rest[1])] = rest[0]
        with back_door(path) as connection:
            live = {row[0] for row in connection.execute("SELECT id FROM alkstore_jobs")}
            dead = {row[0] for row in connection.execute("SELECT id FROM alkstore_dead_jobs")}
        assert is_sound(path), seed
        assert set() == live & dead, seed
        settled = {job_id for job_id, operation in begun.items() if operation in GONE}
        assert set() == enqueued - live - dead - settled, f"{seed}: acknowledged and lost"
        acked = {job_id for job_id, operation in done.items() if operation in GONE}
        assert set() == acked & (live | dead), f"{seed}: acknowledged as gone, and still there"
    with alkstore.open(url_of(path), lock_timeout=5) as store:
        assert store.queue("q").enqueue("still works") > 0
