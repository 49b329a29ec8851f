"""The spool between an iterable and a bulk insert (Q-ENQ-3, Z-9)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alkstore.limits import CHUNK_BYTES, CHUNK_JOBS
from alkstore.options import QueueOptions, Stamps, resolve_enqueue
from alkstore.records import Alike, NewJob
from alkstore.spool import Spool

STAMPS = Stamps.of(QueueOptions())


def job(number: int, size: int = 0) -> NewJob:
    return resolve_enqueue(STAMPS, "raw", bytes(size), {"priority": number})


@settings(max_examples=20)
@given(st.integers(0, 5 * CHUNK_JOBS))
def test_jobs_come_out_in_order_in_chunks(count: int) -> None:
    """All of them, as often as they are asked for."""
    jobs = [job(number) for number in range(count)]
    with Spool(job(0)) as spool:
        for entry in jobs:
            spool.add(entry)
        for _ in range(2):
            chunks = list(spool)
            assert jobs == [entry for chunk in chunks for entry in chunk]
            assert spool.chunks == len(chunks) == -(-count // CHUNK_JOBS)
            assert all(0 < len(chunk) <= CHUNK_JOBS for chunk in chunks)


@pytest.mark.parametrize("size", [CHUNK_BYTES // 4, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_large_payloads_make_small_chunks(size: int) -> None:
    """A chunk is closed once it has its bytes, and goes to disk with those before it."""
    with Spool(job(0)) as spool:
        for number in range(9):
            spool.add(job(number, size))
        chunks = list(spool)
    assert list(range(9)) == [entry.priority for chunk in chunks for entry in chunk]
    assert all(sum(len(entry.payload) for entry in chunk) < CHUNK_BYTES + size for chunk in chunks)


def test_an_empty_spool_has_no_chunks() -> None:
    """Nothing is inserted then."""
    with Spool(job(0)) as spool:
        assert (0, []) == (spool.chunks, list(spool))


@settings(max_examples=20)
@given(st.lists(st.booleans(), max_size=50).map(lambda few: few * (CHUNK_JOBS // 20)))
def test_jobs_given_by_their_payloads_are_like_the_pattern_and_keep_their_places(alike: list[bool]) -> None:
    """Between jobs of their own kind, too; a chunk of nothing else says so."""
    pattern = job(7)
    with Spool(pattern) as spool:
        for number, is_alike in enumerate(alike):
            if is_alike:
                spool.add_alike(b"%d" % number)
            else:
                spool.add(job(number))
        chunks = list(spool)
    wanted = [
        pattern._replace(payload=b"%d" % number) if is_alike else job(number) for number, is_alike in enumerate(alike)
    ]
    assert wanted == [entry for chunk in chunks for entry in chunk]
    for number, chunk in enumerate(chunks):
        place = number * CHUNK_JOBS
        assert isinstance(chunk, Alike) == all(alike[place : place + CHUNK_JOBS])


def test_jobs_alike_are_a_sequence_as_any_other() -> None:
    jobs = Alike(job(7), [b"a", b"b", b"c"])
    listed = list(jobs)
    assert [(7, b"a"), (7, b"b"), (7, b"c")] == [(entry.priority, entry.payload) for entry in listed]
    assert (3, listed[-1], listed[1:]) == (len(jobs), jobs[-1], list(jobs[1:]))
