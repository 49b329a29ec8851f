"""Effects that happen exactly once, although the process that does them is killed in the middle.

    python examples/exactly_once.py --url sqlite:///jobs.db

Twenty payments are to be booked. Each books its amount and acks its job in one transaction. A first worker is killed with SIGKILL
when it has booked some, and is in the middle of one: that it has written, and not committed. A second worker does what is
left, that one included. In the end the balance is right.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from itertools import count

import alkstore

PAYMENTS = 20
AMOUNT = 5


def work(url: str, *, die_at: int | None) -> None:
    """Book what is in line; at the payment given, die with its effects written and not committed."""
    numbers = count(1)
    with alkstore.open(url) as store:

        def book(job: alkstore.RunningJob) -> None:
            with job.transaction() as tx:  # the effects and the ack: both, or neither
                tx.execute(f"UPDATE balance SET amount = amount + {job.payload['amount']:d}, payments = payments + 1")
                if next(numbers) == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        alkstore.Worker(store, {"payments": book}, concurrency=1, ack_window=0).run(until_idle=True)


def balance(store: alkstore.Store) -> tuple[int, int]:
    """Return the amount, and how many payments made it up."""
    with store.transaction() as tx:
        amount, payments = tx.execute("SELECT amount, payments FROM balance").fetchone()
    return int(amount), int(payments)


def main() -> int:
    """Enqueue, have one worker killed and another end the work, and look."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="sqlite:///jobs.db", help="where the jobs are (default: %(default)s)")
    parser.add_argument("--die-at", type=int, help=argparse.SUPPRESS)  # in the process that is killed
    arguments = parser.parse_args()
    if arguments.die_at is not None:
        work(arguments.url, die_at=arguments.die_at)
        return 0

    with alkstore.open(arguments.url) as store:
        with store.transaction() as tx:
            tx.execute("DROP TABLE IF EXISTS balance")
            tx.execute("CREATE TABLE balance (amount INTEGER NOT NULL, payments INTEGER NOT NULL)")
            tx.execute("INSERT INTO balance VALUES (0, 0)")
            # How soon after a worker's death its job is another's: a second, as nobody wants to wait here.
            tx.queue("payments", visibility_timeout=1).enqueue_many([{"amount": AMOUNT}] * PAYMENTS)

        worker = subprocess.run([sys.executable, __file__, "--url", arguments.url, "--die-at", "8"], check=False)
        print("The first worker was", "killed" if worker.returncode == -signal.SIGKILL else "NOT killed", end=", ")
        print("with {1} payments booked, which make {0}.".format(*balance(store)))

        payments = store.queue("payments")
        while payments.jobs(limit=1):
            payments.wait(timeout=5)  # for the claim of the dead worker to lapse
            work(arguments.url, die_at=None)
        amount, booked = balance(store)
        print(f"The second did the rest: {booked} payments booked, which make {amount}.")
        print("Exactly once." if (amount, booked) == (PAYMENTS * AMOUNT, PAYMENTS) else "WRONG.")
        return 0 if (amount, booked) == (PAYMENTS * AMOUNT, PAYMENTS) else 1


if __name__ == "__main__":
    sys.exit(main())
