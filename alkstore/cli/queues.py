"""Which queues a command is about."""

from __future__ import annotations

from collections.abc import Sequence

from alkstore.errors import ValidationError
from alkstore.protocols import Queue, Store
from alkstore.shell import complain


def named_or_all(store: Store, names: Sequence[str]) -> tuple[list[Queue], bool]:
    """Return the named queues, or else all that have rows, and whether that is all there was to return.

    What other hands have written may have a name that no queue may have (N-1): it is told of on stderr, and passed over,
    so that the others are seen nevertheless. A name that was given as an argument raises ``ValidationError``.
    """
    if names:
        return [store.queue(name) for name in dict.fromkeys(names)], True
    queues: list[Queue] = []
    whole = True
    for name in store.queues():
        try:
            queues.append(store.queue(name))
        except ValidationError as exc:
            complain(f"passed over: {exc}")
            whole = False
    return queues, whole
