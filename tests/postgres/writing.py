"""A program that writes until it is killed, and says what it did; run by test_crashes.py.

    python -m tests.postgres.writing URL SCHEMA SEED

Each line on the output is a letter and a job's id: ``e`` enqueued (said once the call has returned), ``a``, ``f``, ``r``
about to ack, fail or retry, and ``A``, ``F``, ``R`` once that has returned True.
"""

from __future__ import annotations

import random
import sys

import alkstore


def main(url: str, schema: str, seed: str) -> None:
    """Enqueue, claim, ack, fail and retry, for ever."""
    dice = random.Random(seed)
    store = alkstore.open(url, schema=schema, pool_size=2)
    queue = store.queue("q", max_attempts=3)

    def say(letter: str, job_id: int) -> None:
        sys.stdout.write(f"{letter} {job_id}\n")
        sys.stdout.flush()

    while True:
        for job_id in queue.enqueue_many(range(dice.randrange(1, 4))):
            say("e", job_id)
        for handle in queue.claim_batch("w", dice.randrange(1, 4)):
            letter = dice.choice("aafr")
            say(letter, handle.id)
            if letter == "a":
                done = handle.ack()
            elif letter == "f":
                done = handle.fail("as the dice fell")
            else:
                done = handle.retry("as the dice fell", delay=0)
            if done:
                say(letter.upper(), handle.id)


if __name__ == "__main__":
    main(*sys.argv[1:])
