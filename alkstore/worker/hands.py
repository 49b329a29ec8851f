"""Who runs a handler: the worker's own thread, or a process of its own (see ``children``).

Each of a worker's runner threads has one hand. It takes a job, gives it to the hand, and waits: all that concerns the claim
stays in the worker's process, whoever runs the handler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from alkstore.errors import TransactionError
from alkstore.store import Store
from alkstore.texts import error_text
from alkstore.transaction import Transaction
from alkstore.worker.job import RunningJob

Handler: TypeAlias = Callable[[RunningJob], object]
"""What does the work of one job: it returns, and the job is acked; it raises, and the job is retried."""


class Hand(Protocol):
    """Who runs handlers for one runner thread, one after the other."""

    def ready(self) -> bool:
        """Wait until a handler could be run; ``False`` where the worker stops first."""
        ...

    def run(self, job: RunningJob, handler: Handler) -> object:
        """Run it, and return what it returned or raise what it raised.

        Of one that ran elsewhere, ``ReportedError``, and ``Encoded`` where the job keeps its result.
        """
        ...

    def interrupt(self, why: str, only: RunningJob | None = None) -> bool:
        """End this job, if it is what runs: ``run`` raises, with the reason. Without one, whatever runs, and for good.

        Returns ``False`` where that can't be done at all.
        """
        ...

    def stopping(self) -> None:
        """Tell what runs that the worker is to stop."""
        ...

    def kill(self) -> None:
        """End it at once, whatever it does; may be called in a signal's handler."""
        ...

    def close(self) -> None:
        """End it; called by the runner thread, when nothing runs."""
        ...


class NoHandError(RuntimeError):
    """Nobody could be had who runs handlers; the text says why."""


class ReportedError(Exception):
    """What became of a handler that ran elsewhere, and failed; the text is ready to be kept."""

    def __init__(self, text: str, kind: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.kind = kind
        """The class of what it raised; ``None`` where its process was ended, or ended itself."""


class Encoded(NamedTuple):
    """What a handler that ran elsewhere returned, as the job's result is stored."""

    data: bytes


def text_of(error: BaseException) -> str | None:
    """Return what to keep of a handler's failure."""
    return error.text if isinstance(error, ReportedError) else error_text(error)


def end_fork(error: BaseException | None) -> NoReturn:
    """End a fork's child that a handler has let come back: it isn't the worker, and the job is its parent's.

    With the code of a ``sys.exit``, for whoever waits for it; else, as it should have ended by itself, with 1.
    """
    code = error.code if isinstance(error, SystemExit) else 1
    os._exit(0 if code is None else code & 0xFF if isinstance(code, int) else 1)


def leave_nothing_open(store: Store) -> None:
    """Roll back a transaction that a handler has left open in this thread, whoever still has it, and raise ``TransactionError``.

    It would hold up the job's own ack, and on SQLite whatever is written.
    """
    left = store.open_transaction()
    if isinstance(left, Transaction):
        left.abandon()
        raise TransactionError("the handler has left a transaction open, which was rolled back")


class OwnHand:
    """The runner thread itself: nothing in Python can end what it runs."""

    def ready(self) -> bool:
        """Always."""
        return True

    def run(self, job: RunningJob, handler: Handler) -> object:
        """Call it."""
        process = os.getpid()
        try:
            returned = handler(job)
        except BaseException as exc:
            if os.getpid() != process:
                end_fork(exc)
            raise
        if os.getpid() != process:
            end_fork(None)
        return returned

    def interrupt(self, why: str, only: RunningJob | None = None) -> bool:  # noqa: ARG002 - see Hand
        """Say that it can't be done."""
        return False

    def stopping(self) -> None:
        """Do nothing: the job looks at the worker's own event."""

    def kill(self) -> None:
        """Do nothing: the thread ends with the process."""

    def close(self) -> None:
        """Do nothing."""
