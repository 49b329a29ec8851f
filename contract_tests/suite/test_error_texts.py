"""What is kept of a failure: its text, made storable, so that recording it can't fail (J-9, Z-5)."""

from __future__ import annotations

import pytest

from alkstore import State
from alkstore.protocols import Queue
from contract_tests.clauses import clause
from contract_tests.steps import Peek, claimed, found


@clause("J-9")
@pytest.mark.parametrize("bury", [True, False], ids=["fail", "retry"])
def test_an_error_text_that_no_database_takes_is_made_storable(bury: bool, queue: Queue, peek: Peek) -> None:
    """NUL and lone surrogates become U+FFFD, and the rest stays verbatim, in the dead table and on a live row."""
    job_id = queue.enqueue("work")
    handle, text = claimed(queue), "bad \x00 \udcff end"
    assert handle.fail(text) if bury else handle.retry(text, delay=0)
    assert "bad \ufffd \ufffd end" == found(queue, job_id).last_error
    assert ["bad \ufffd \ufffd end"] == [row.last_error for row in peek()]


@clause("J-9", "Z-5")
@pytest.mark.parametrize("letter", ["x", "é", "🜲"])
@pytest.mark.parametrize("bury", [True, False], ids=["fail", "retry"])
def test_an_endless_error_text_is_cut_with_a_mark(bury: bool, letter: str, queue: Queue) -> None:
    """Of 5 MB, 64 KiB of UTF-8 are kept, the mark included, and what is kept is the beginning."""
    job_id = queue.enqueue("work")
    handle, text = claimed(queue), letter * (5_000_000 // len(letter.encode()))
    assert handle.fail(text) if bury else handle.retry(text, delay=0)
    kept = found(queue, job_id).last_error
    assert kept is not None
    size = len(kept.encode())
    assert 64 * 1024 - 3 <= size <= 64 * 1024
    beginning = kept.rstrip(".() acut") if letter == "x" else kept[: kept.rindex(letter) + 1]
    assert {letter} == set(beginning)
    assert len(beginning) < len(kept), "no mark says that it was cut"


@clause("J-9", "Z-5")
def test_an_error_text_of_just_64_kib_is_kept_whole(queue: Queue) -> None:
    """The limit itself isn't over the limit; one more byte is."""
    first, second = queue.enqueue_many(["a", "b"])
    text = "é" * (32 * 1024)
    handles = queue.claim_batch("worker-1", 2)
    assert handles[0].fail(text)
    assert handles[1].fail(text + "x")
    assert text == found(queue, first).last_error
    assert text + "x" != found(queue, second).last_error


@clause("J-9")
def test_an_error_text_is_kept_verbatim(queue: Queue) -> None:
    """Blanks, line ends, quotes, control characters and all of Unicode come back as they were."""
    text = '  it\'s "100%"\r\n\t\x01\x7f \ufeff ä🜲 \\ %s {0} $1 ; -- '
    job_id = queue.enqueue("work")
    assert claimed(queue).fail(text)
    assert text == found(queue, job_id).last_error


@clause("Z-5", "J-9")
def test_an_exception_is_recorded_as_its_type_and_text(queue: Queue) -> None:
    """``Type: text``, or the type alone; one whose text can't be had is recorded all the same."""

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    ids = queue.enqueue_many(["a", "b", "c"])
    texts: list[str | None] = []
    for handle, error in zip(
        queue.claim_batch("worker-1", 3),
        [ValueError("broken \x00"), KeyboardInterrupt(), UnprintableError()],
        strict=True,
    ):
        assert handle.fail(error)
        texts.append(found(queue, handle.id).last_error)
    assert ids == [job.id for job in queue.jobs(State.DEAD)]
    assert ["ValueError: broken \ufffd", "KeyboardInterrupt"] == texts[:2]
    assert (texts[2] or "").startswith("UnprintableError")
