"""A program that forks with an open store and an open transaction; run by test_fork.py, so that children may end as programs do.

python -m tests.postgres.forking URL SCHEMA (os._exit|sys.exit)
"""

from __future__ import annotations

import os
import sys

import alkstore


def main(url: str, schema: str, leave: str) -> None:
    """Enqueue 1, have four children enqueue 100 each and leave, and go on, in and after a transaction."""
    store = alkstore.open(url, schema=schema)
    queue = store.queue("q")
    queue.enqueue("parent")
    with store.transaction() as tx:
        tx.queue("q").enqueue("before the forks")
        children: list[int] = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                for n in range(100):
                    queue.enqueue(n)
                if leave == "os._exit":
                    os._exit(0)
                sys.exit(0)  # through the blocks that are open, the interpreter's own end, and all of the garbage
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        tx.queue("q").enqueue("after the forks")
    if codes != [0] * 4:
        sys.exit(f"the children left with {codes}")
    queue.enqueue("parent again")
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
