"""A store survives a fork: nothing hangs, nothing is lost, and the parent's connections are left alone (S-4).

``alkstore_sqlite.fork`` says what goes wrong otherwise, and how.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite import fork
from contract_tests.scale import rounds
from tests.sqlite.support import Program, is_sound, look, url_of

COUNT = "SELECT count(*) FROM alkstore_jobs"


@pytest.mark.parametrize("how", ["os._exit", "sys.exit", "multiprocessing os._exit", "multiprocessing sys.exit"])
def test_a_parent_and_its_four_children_enqueue_401(path: Path, how: str) -> None:
    with Program("fork_four", url_of(path), how) as program:
        assert ["401"] == program.finish()
    assert [401] == look(path, COUNT)
    assert is_sound(path)


def test_a_link_to_the_file_is_as_good_as_the_file(path: Path) -> None:
    (path.parent / "folder").mkdir()
    path.symlink_to(path.parent / "folder" / "real.db")
    with Program("fork_four", url_of(path), "os._exit") as program:
        assert ["401"] == program.finish()
    assert [401] == look(path, COUNT)


@pytest.mark.parametrize("how", ["close", "exit", "kill"])
def test_what_a_child_commits_after_its_parent_has_closed_is_kept(path: Path, how: str) -> None:
    with Program("parent_ends_first", url_of(path), how) as program:
        assert "child done" == program.hear()
        assert [] == program.rest()
    assert [101] == look(path, COUNT)
    assert is_sound(path)


@pytest.mark.parametrize(("how", "jobs"), [("commit", 22), ("rollback", 20)])
def test_an_inherited_transaction_refuses_use_and_stands_in_nobodys_way(path: Path, how: str, jobs: int) -> None:
    with Program("fork_in_transaction", url_of(path), how) as program:
        assert [str(jobs)] == program.finish()
    assert [jobs] == look(path, COUNT)
    assert is_sound(path)


def test_forks_among_threads_that_read_write_and_keep_transactions(path: Path) -> None:
    with Program("fork_among_threads", url_of(path), rounds(300)) as program:
        enqueued, ready = json.loads(program.finish()[0])
    assert enqueued == ready
    assert [enqueued] == look(path, COUNT)
    assert is_sound(path)


def test_an_idle_connection_of_the_applications_own_does_no_harm(path: Path) -> None:
    with Program("fork_with_foreign_connection", path, "after") as program:
        assert [] == program.finish()
    assert [2] == look(path, COUNT)
    assert is_sound(path)


def test_one_that_the_parent_has_closed_by_then_leaves_a_child_that_refuses(path: Path) -> None:
    """SQLite there would go on with a log that is deleted, and whatever it commits be lost without an error."""
    with Program("fork_with_foreign_connection", path, "before") as program:
        assert ["EngineUnavailableError"] == program.finish()
    with alkstore.open(url_of(path)) as store:
        assert 1 == store.queue("q").enqueue("sound")
    assert is_sound(path)


def test_a_transaction_that_cannot_be_cleared_leaves_a_child_that_refuses(path: Path) -> None:
    with Program("fork_with_temporary_table", url_of(path)) as program:
        assert ["EngineUnavailableError", "EngineUnavailableError", "1"] == program.finish()
    assert is_sound(path)


def test_a_child_of_a_store_in_memory_finds_it_closed() -> None:
    with Program("fork_memory") as program:
        assert ["2"] == program.finish()


def test_a_fork_that_cannot_wait_leaves_a_store_that_says_so(path: Path) -> None:
    with Program("fork_inside_sqlite", url_of(path)) as program:
        assert ["EngineUnavailableError", "1"] == program.finish()
    with alkstore.open(url_of(path)) as store:
        assert 1 == store.queue("q").stats().ready


def test_a_process_that_was_not_forked_takes_no_locks_for_a_store(
    path: Path, store: alkstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has one lock on a file: a shared one would weaken the exclusive one of a connection that checkpoints."""
    taken: list[str] = []
    monkeypatch.setattr(fork, "adopt_locks", taken.append)
    alkstore.open(url_of(path)).close()
    assert [] == taken
