"""The server's names for channels, and payloads that it doesn't merge (clauses W-1, N-4)."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from typing import Any, Final, cast

_NUMBERED: Final = re.compile(r"[0-9a-f]{1,32}:", re.ASCII)


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
        """Return the payload of what was sent; raise ``ValueError`` for what ``unique`` doesn't make.

        Anybody may send anything on any channel of the database.
        """
        number = _NUMBERED.match(sent)
        if number is None:
            raise ValueError("no number at its beginning")
        return sent[number.end() :]

    def wake(self, sender: str, queue: str, count: int) -> str:
        """Return what is sent on the channel of the wakes."""
        return self.unique(json.dumps([sender, queue, count]))

    def read_wake(self, sent: str) -> tuple[str, str, int]:
        """Return sender, queue and count of what came on the channel of the wakes; raise ``ValueError`` likewise."""
        try:
            found = json.loads(self.plain(sent))
        except RecursionError:
            raise ValueError("nested too deeply") from None
        parts = cast("list[Any]", found) if isinstance(found, list) else []
        if [str, str, int] != [type(part) for part in parts] or parts[2] < 0:
            raise ValueError("not sender, queue and count")
        sender, queue, count = parts
        return sender, queue, count
