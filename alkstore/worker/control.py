"""What a handler raises on purpose, to say what is to become of its job."""

from __future__ import annotations

from typing import Final

from alkstore.clock import Duration, duration
from alkstore.texts import error_text


class Retry(Exception):
    """Raised in a handler: try the job again later (J-4).

    Due after ``delay``, else after a draw of the job's own curve; where the budget is spent the job is dead, as after any
    failure. ``reason`` is kept as ``last_error``: a text, or an exception. Raises ``ValidationError`` for a delay that is none.
    """

    def __init__(self, delay: Duration | None = None, reason: str | BaseException | None = None) -> None:
        self.delay: Final = None if delay is None else duration(delay, "delay")
        self.reason: Final = error_text(reason)
        super().__init__(self.reason or "retry")


class Fail(Exception):
    """Raised in a handler: the job is dead now, whatever its budget (J-5).

    ``reason`` is kept as ``last_error``: a text, or an exception.
    """

    def __init__(self, reason: str | BaseException | None = None) -> None:
        self.reason: Final = error_text(reason)
        super().__init__(self.reason or "failed")


class Unhandled(Exception):
    """Raised in a handler that does not know what to do with the job, and another worker may.

    The job is released, its attempt given back, with a delay that grows each time this worker meets it (J-6).
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
