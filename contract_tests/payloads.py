"""What payloads come to, and codecs that an application might bring."""

from __future__ import annotations

import pickle
from typing import cast

from alkstore.protocols import Queue


def shape(value: object) -> object:
    """Return the value with the types of all its parts and the order of its keys, which ``==`` alone doesn't see."""
    kind: type[object] = type(value)
    if isinstance(value, dict):
        return (kind, [(shape(key), shape(item)) for key, item in cast(dict[object, object], value).items()])
    if isinstance(value, list | tuple):
        return (kind, [shape(item) for item in cast(list[object], value)])
    # repr tells -0.0 from 0.0; an int of thousands of digits has no repr everywhere.
    return (kind, repr(value) if isinstance(value, float) else value)


def came_back(queue: Queue, payload: object) -> tuple[object, object]:
    """Enqueue, claim and ack a payload; return what came back of it, on the handle and on the record."""
    job_id = queue.enqueue(payload)
    handle = queue.claim_one("reader")
    assert handle is not None
    job = queue.get_job(job_id)
    assert job is not None
    assert handle.raw == job.raw
    result = (handle.payload, job.payload)
    assert handle.ack()
    return result


def handed_out(queue: Queue, n: int = 1_000) -> list[object]:
    """Claim a batch, and return the payloads in the order of the list."""
    return [handle.payload for handle in queue.claim_batch("worker-1", n)]


class Pickled:
    """A codec of an application's own."""

    name = "pickled"

    def encode(self, payload: object) -> bytes:
        """Return the payload pickled."""
        return pickle.dumps(payload)

    def decode(self, data: bytes) -> object:
        """Return what was pickled."""
        return pickle.loads(data)  # noqa: S301 - the test's own bytes


class Failing:
    """A codec that can do neither."""

    name = "failing"

    def encode(self, payload: object) -> bytes:
        """Fail."""
        raise RuntimeError("can't encode")

    def decode(self, data: bytes) -> object:
        """Fail."""
        raise RuntimeError("can't decode")


class Wordy(Failing):
    """A codec that gives text."""

    name = "wordy"

    def encode(self, payload: object) -> bytes:
        """Return what isn't bytes."""
        return cast(bytes, "text")


class Bomb(Failing):
    """A codec that writes what it can't read."""

    name = "bomb"

    def encode(self, payload: object) -> bytes:
        """Return something."""
        return b"tick"


class Scrambled(Bomb):
    """A codec that writes, under the name of JSON, what is none."""

    name = "json"

    def encode(self, payload: object) -> bytes:
        """Return bytes that are no JSON, nor UTF-8."""
        return b'{"broken": \xff'
