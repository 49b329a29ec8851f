"""Whether what others send arrives on a session at all (clauses W-1, W-3, Z-14).

Behind a pooler that lends out sessions by the transaction a LISTEN succeeds, and nothing ever comes; nor does it where
``listen_url`` names another database. So each new session that listens is sent an echo, by the way that wakes take. Anything
that arrives is as good a proof, once and for all. But what comes along with an answer is none: a pooler may deliver
that, as it has just lent a session that happens to listen.

**Silence proves little.** The database may be slow. So a session is called deaf when its echo, certainly sent, didn't arrive
for a while; it goes on listening, is sent another echo now and then, and hears again as soon as anything arrives.
"""

from __future__ import annotations

import secrets
import time
from typing import Final

from alkstore.backoff import pause

PREFIX: Final = "alkstore_echo_"

_ECHO_WITHIN: Final = 5.0
"""Seconds after which silence counts; as a rule an echo takes a few milliseconds."""

_SENT_WITHIN: Final = 30.0
"""Seconds after which another is sent where nothing is heard of the sending of one."""

_AGAIN_EVERY: Final = 60.0
"""Seconds between two echoes to a session that is deaf: a pooler stays one, but a slow server doesn't."""

_BACKOFF: Final = (0.1, 5.0)
"""Seconds before another echo is sent where one could not be."""


class Proof:
    """What is known of one session. ``sent`` and ``failed`` are called by the thread that sends, all else by the ear's."""

    __slots__ = ("_again", "_failures", "_late", "channel", "deaf", "heard")

    def __init__(self) -> None:
        self.channel: Final = PREFIX + secrets.token_hex(8)
        """Where the echo is sent to."""
        self.heard = False
        """Something has arrived."""
        self.deaf = False
        """Nothing has, for too long."""
        self._again = 0.0
        """When to send an echo: monotonic seconds."""
        self._late = float("inf")
        """When silence begins to count."""
        self._failures = 0

    def is_to_send(self) -> bool:
        """Say, once, whether an echo is to be sent."""
        now = time.monotonic()
        if self.heard or now < self._again:
            return False
        self._again = now + _SENT_WITHIN
        return True

    def sent(self) -> None:
        """Note that an echo was sent."""
        now = time.monotonic()
        self._failures = 0
        self._late = now + _ECHO_WITHIN
        self._again = now + _AGAIN_EVERY

    def failed(self) -> None:
        """Note that one could not be sent; of the session that says nothing."""
        self._again = time.monotonic() + pause(*_BACKOFF, self._failures)
        self._failures += 1

    def spoiled(self) -> None:
        """Note that something came along with an answer: that is none, so another echo is sent."""
        self._again = 0.0

    def is_silent(self) -> bool:
        """Say whether the session is to be called deaf, which it isn't yet."""
        return not (self.heard or self.deaf) and time.monotonic() >= self._late

    def rest(self) -> float:
        """Return in how many seconds something is to be done."""
        if self.heard:
            return float("inf")
        return min(self._again, float("inf") if self.deaf else self._late) - time.monotonic()
