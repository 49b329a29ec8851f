"""One job of many: a payload with options of its own (Z-9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack, cast

from alkstore.errors import shown
from alkstore.options import JobOptions


class Item:
    """A payload for ``enqueue_many`` whose options differ from the others'.

    Takes the options of ``enqueue``; they are checked when the item is enqueued, before anything is written.
    """

    __slots__ = ("options", "payload")

    payload: object
    options: Mapping[str, object]

    def __init__(self, payload: object, **options: Unpack[JobOptions]) -> None:
        self.payload = payload
        self.options = cast(Mapping[str, object], options)

    def __repr__(self) -> str:
        given = "".join(f", {key}={shown(value)}" for key, value in self.options.items())
        return f"Item({shown(self.payload)}{given})"
