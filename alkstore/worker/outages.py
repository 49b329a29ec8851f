"""Waiting out a database that can't be reached: growing, jittered pauses, and one line in the log for each outage."""

from __future__ import annotations

import logging
import threading
from typing import Final

from alkstore.backoff import pause

_LOG: Final = logging.getLogger("alkstore.worker")

_FIRST: Final = 0.05
LONGEST: Final = 5.0
"""Seconds between two attempts at a database that has been away for long, at most."""


class Outage:
    """The failures in a row of one of a worker's threads."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0

    def over(self) -> None:
        """Note a success."""
        if self._failures:
            _LOG.info("%s goes on: the database answers again, after %d failed attempts", self._what, self._failures)
            self._failures = 0

    def pause(self, error: Exception) -> float:
        """Note a failure, and return for how many seconds to wait before the next attempt."""
        _LOG.log(
            logging.DEBUG if self._failures else logging.WARNING, "%s waits for the database: %s", self._what, error
        )
        self._failures += 1
        return pause(_FIRST, LONGEST, self._failures - 1)

    def wait(self, error: Exception, over: threading.Event) -> None:
        """Note a failure, and wait, or until it is over."""
        over.wait(self.pause(error))
