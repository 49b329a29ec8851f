"""What happened in a concurrent run, written down as it happens, and judged afterwards.

Threads and processes record what they were told: that they tried to enqueue, that it was acknowledged, that they were
handed a job, that its ack was granted. No lock orders the records, and none is needed: the verdict depends on how
often each thing happened to each job, never on when. The words are those of Jepsen's queue checker:

* *lost*: acknowledged, and neither done nor left in the store (nor about to be acked by somebody who was killed then);
* *duplicated*: done twice, or left in the store although done;
* *unexpected*: done or left, and nobody ever tried to enqueue it;
* *recovered*: enqueued without an acknowledgement (the writer was killed, or cut off), and there all the same. That is
  allowed, and counted.

Jobs go by a key that the test puts into the payload, because a writer that dies before its answer never learns the id.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Self


class Record(NamedTuple):
    """One thing that happened: ``attempted``, ``acknowledged``, ``claimed``, ``acking`` or ``done``."""

    what: str
    key: str
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a history proves; each field lists keys, sorted."""

    lost: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()
    double_claims: tuple[str, ...] = ()
    """Handed out twice as the same attempt: a claim adds one, so that two can only be one job in two hands (Q-CLAIM-2)."""

    @property
    def faults(self) -> dict[str, tuple[str, ...]]:
        """Return what must not be: everything but ``recovered``, where not empty."""
        judged = {name: value for name, value in vars(self).items() if name != "recovered"}
        return {name: value for name, value in judged.items() if value}


class History:
    """A record of one run, safe to write from any number of threads.

    With ``path``, records are appended to that file too, one line each and written through at once: a process that is
    killed leaves everything that it recorded. ``load`` reads such a file back.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._records: deque[Record] = deque()
        self._file: IO[bytes] | None = None if path is None else path.open("ab", buffering=0)

    def attempted(self, key: object) -> None:
        """Note that an enqueue is about to be tried."""
        self._note(Record("attempted", str(key)))

    def acknowledged(self, key: object) -> None:
        """Note that the enqueue returned."""
        self._note(Record("acknowledged", str(key)))

    def claimed(self, key: object, attempt: int) -> None:
        """Note that the job was handed out, and as which attempt."""
        self._note(Record("claimed", str(key), attempt))

    def acking(self, key: object) -> None:
        """Note that an ack is about to be tried; where no ``done`` follows, nobody knows whether it was granted."""
        self._note(Record("acking", str(key)))

    def done(self, key: object) -> None:
        """Note that the job's ack was granted, or that its effect was found."""
        self._note(Record("done", str(key)))

    def count(self, what: str) -> int:
        """Return how often something happened."""
        return sum(record.what == what for record in self._records)

    def load(self, path: Path) -> Self:
        """Add the records of a file that another process wrote; a last line cut off by a kill is left out."""
        for line in path.read_bytes().split(b"\n")[:-1]:
            self._records.append(Record(*json.loads(line)))
        return self

    def check(self, left: Iterable[object] = ()) -> Verdict:
        """Judge the run, given the keys that are still in the store, live or dead, once per row."""
        by_kind = {
            what: Counter(record.key for record in self._records if record.what == what)
            for what in ("attempted", "acknowledged", "acking", "done")
        }
        attempted, acknowledged = by_kind["attempted"], by_kind["acknowledged"]
        there = by_kind["done"] + Counter(str(key) for key in left)
        claims = Counter((record.key, record.attempt) for record in self._records if record.what == "claimed")
        return Verdict(
            lost=_keys(acknowledged.keys() - there.keys() - by_kind["acking"].keys()),
            duplicated=_keys(key for key, times in there.items() if times > 1),
            unexpected=_keys(there.keys() - attempted.keys()),
            recovered=_keys((there.keys() & attempted.keys()) - acknowledged.keys()),
            double_claims=_keys({key for (key, _), times in claims.items() if times > 1}),
        )

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note(self, record: Record) -> None:
        self._records.append(record)
        if self._file is not None:
            self._file.write(json.dumps(record).encode() + b"\n")


def _keys(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(keys))
