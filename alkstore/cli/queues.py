"""Which queues a command is about."""

from __future__ import annotations

from collections.abc import Sequence

from alkstore.errors import ValidationError
from alkstore.protocols import Queue, Store
from alkstore.shell import Exit, complain


def named_or_all(store: Store, names: Sequence[str]) -> tuple[list[Queue], list[str]]:
    """Return the named queues, or else all that have rows, and what there is to complain of.

    What other hands have written may have a name that no queue may have (N-1): it is passed over, so that the others are
    seen nevertheless. A name that was given as an argument raises ``ValidationError``.
    """
    if names:
        return [store.queue(name) for name in dict.fromkeys(names)], []
    queues: list[Queue] = []
    complaints: list[str] = []
    for name in store.queues():
        try:
            queues.append(store.queue(name))
        except ValidationError as exc:
            complaints.append(f"passed over: {exc}")
    return queues, complaints


def complain_of(complaints: Sequence[str]) -> Exit:
    """Say on stderr what was passed over, and return what the command exits with, having done the rest."""
    for complaint in complaints:
        complain(complaint)
    return Exit.FAILED if complaints else Exit.DONE
