"""The server's names for channels, and payloads that it doesn't merge (clauses W-1, N-4)."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Final


class Channels:
    """The server's names for the channels of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._number = itertools.count(1)
        self.wakes: Final = self._hashed("wakes", "")

    def _hashed(self, kind: str, name: str) -> str:
        digest = hashlib.blake2b(digest_size=20, person=b"alkstore")
        digest.update(f"{kind}\0{self._schema}\0{name}".encode())
        return "alkstore_" + digest.hexdigest()

    def of(self, name: str) -> str:
        """Return the server's name of a channel."""
        return self._hashed("channel", name)

    def unique(self, payload: str) -> str:
        """Return the payload as it is sent, which is different from the one before."""
        return f"{next(self._number):x}:{payload}"

    @staticmethod
    def plain(sent: str) -> str:
        """Return the payload of what was sent."""
        return sent.partition(":")[2]

    def wake(self, sender: str, queue: str, count: int) -> str:
        """Return what is sent on the channel of the wakes."""
        return self.unique(json.dumps([sender, queue, count]))

    def read_wake(self, sent: str) -> tuple[str, str, int]:
        """Return sender, queue and count of what came on the channel of the wakes."""
        sender, queue, count = json.loads(self.plain(sent))
        return sender, queue, count
