"""Hooks and the processes in which a worker runs its handlers: the process's side.

Hooks stay with the worker: what they hold, counters or connections, is there once. So the store of a process has one hook, which
sends on all that it is told, and the worker's are told it. What can't wait for that, a handler's surroundings and the headers of
what it enqueues, is for the hooks' deputies, which come along with each job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alkstore.errors import ValidationError
from alkstore.hooks import Enqueueing, HookFailed, Hooks
from alkstore.telling import Telling, telling
from alkstore.worker import handing, messages
from alkstore.worker.hands import Handler
from alkstore.worker.job import RunningJob


class Relay(Hooks):
    """Sends what it is told to the worker."""

    def __init__(self, say: messages.Say) -> None:
        self._say = say
        self._deputies: Telling | None = None

    def run(self, job: RunningJob, handler: Handler, deputies: Sequence[bytes]) -> object:
        """Run a handler within the blocks of these deputies."""
        found: list[Hooks] = [Relay(self._say)]  # is told which of them fail
        for data in deputies:
            try:
                found.append(handing.deputy(data))
            except ValidationError as exc:
                self.hook_failed(HookFailed(hook="Hooks", method="deputy", error=str(exc)))
        # Handlers run on the main thread here, but signals' handlers do nothing.
        self._deputies = here = Telling(found, interruptible=False)
        job.handle.claim.begin_timing()
        with here.running(job):
            return handler(job)

    def enqueueing(self, event: Enqueueing) -> Mapping[str, str] | None:
        """Ask the deputies: nobody waits here for an answer from the worker."""
        return None if self._deputies is None else self._deputies.headers(event)

    def enqueued(self, event: object) -> None:
        """Send it."""
        self._say(messages.Told(event))

    claimed = succeeded = retried = died = lost = swept = hook_failed = enqueued


def relaying(say: messages.Say) -> tuple[Relay, Telling | None]:
    """Return a relay, and what tells it."""
    relay = Relay(say)
    return relay, telling([relay])
