"""A program whose process of multiprocessing's enqueues, holds a consumer, and returns; run by test_ending.py.

python -m tests.engines.ending (fork|forkserver|spawn) (its own|inherited) URL OPTIONS, the last as JSON
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from typing import Any

import alkstore

kept: list[alkstore.Consumer] = []


def work(store: alkstore.Store | None, url: str, options: dict[str, Any]) -> None:
    """Leave a consumer open that has claimed more than it gave, and rings on their way."""
    if store is None:
        store = alkstore.open(url, **options)
    consumer = store.queue("claimed").consume("w", batch=4)
    next(consumer)
    kept.append(consumer)
    store.queue("rung").enqueue(1)


def main(method: str, whose: str, url: str, options: dict[str, Any]) -> None:
    """Have it done."""
    store = alkstore.open(url, **options) if whose == "inherited" else None
    multiprocessing.set_start_method(method)
    process = multiprocessing.Process(target=work, args=(store, url, options))
    process.start()
    process.join()
    sys.exit(process.exitcode)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
