"""The judge of concurrent runs finds each fault that it is there for, and nothing in a run that went well."""

from __future__ import annotations

from pathlib import Path

from contract_tests.history import History, Verdict


def enqueued(*keys: str) -> History:
    """Begin a history with jobs that were enqueued well."""
    history = History()
    for key in keys:
        history.attempted(key)
        history.acknowledged(key)
    return history


def test_a_run_that_went_well_has_no_fault() -> None:
    """Done once, or left once, is all that is asked."""
    history = enqueued("a", "b")
    history.claimed("a", 1)
    history.acking("a")
    history.done("a")
    verdict = history.check(left=["b"])
    assert (Verdict(), {}) == (verdict, verdict.faults)


def test_a_job_that_is_nowhere_is_lost() -> None:
    """Acknowledged, and neither done nor left."""
    assert {"lost": ("b",)} == enqueued("a", "b").check(left=["a"]).faults


def test_a_job_whose_ack_was_cut_off_is_not_called_lost() -> None:
    """Nobody knows whether that ack was granted."""
    history = enqueued("a")
    history.acking("a")
    assert {} == history.check().faults


def test_a_job_done_twice_or_done_and_left_is_duplicated() -> None:
    """So is one that is left in two rows."""
    history = enqueued("a", "b", "c")
    history.done("a")
    history.done("a")
    history.done("b")
    assert {"duplicated": ("a", "b", "c")} == history.check(left=["b", "c", "c"]).faults


def test_a_job_that_nobody_enqueued_is_unexpected() -> None:
    """Whether it was done or is left."""
    history = enqueued("a")
    history.done("x")
    assert {"unexpected": ("x", "y")} == history.check(left=["a", "y"]).faults


def test_a_job_without_an_acknowledgement_may_be_there_or_not() -> None:
    """Where it is, it is counted as recovered, which is no fault."""
    history = enqueued("a")
    history.attempted("b")
    history.attempted("c")
    verdict = history.check(left=["a", "b"])
    assert (("b",), {}) == (verdict.recovered, verdict.faults)


def test_one_attempt_handed_out_twice_is_a_double_claim() -> None:
    """The next attempt of the same job is none."""
    history = enqueued("a", "b")
    for key, attempt in [("a", 1), ("a", 2), ("b", 1), ("b", 1)]:
        history.claimed(key, attempt)
    assert {"double_claims": ("b",)} == history.check(left=["a", "b"]).faults


def test_records_of_a_killed_process_are_read_back(tmp_path: Path) -> None:
    """Each record is in the file at once, and a last line that was cut off is left out."""
    path = tmp_path / "history"
    written = History(path)
    written.attempted("a")
    written.acknowledged("a")
    written.claimed("a", 1)
    with path.open("ab") as file:
        file.write(b'["done", "a"')
    read = History().load(path)
    written.close()
    assert (1, 1, 1, 0) == tuple(read.count(what) for what in ("attempted", "acknowledged", "claimed", "done"))
    assert {"lost": ("a",)} == read.check().faults
