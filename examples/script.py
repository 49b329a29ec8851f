"""A queue in a script: put some work in, and do it, as many times as the script is started.

    python examples/script.py --url sqlite:///jobs.db

Whatever a run leaves undone, because it was stopped or something failed, the next one finds.
"""

from __future__ import annotations

import argparse

import alkstore

NAMES = ("ada", "grace", "edsger")


def main() -> None:
    """Enqueue a greeting for everybody, and greet whoever is in line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="sqlite:///jobs.db", help="where the queue is (default: %(default)s)")
    with alkstore.open(parser.parse_args().url) as store, store.queue("greetings", visibility_timeout=30) as greetings:
        greetings.enqueue_many({"name": name} for name in NAMES)
        while (job := greetings.claim_one("script")) is not None:
            with job:  # acked when the block ends well, and tried again later when it raises
                print("Hello,", job.payload["name"])


if __name__ == "__main__":
    main()
