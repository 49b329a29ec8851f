"""What an SQLite URL names (S-1)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import alkstore
from alkstore_sqlite.location import Location, parse


def test_three_slashes_are_a_relative_path_made_absolute_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with alkstore.open("sqlite:///jobs.db", durability="relaxed") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.queue("q").enqueue(1)
    assert [] == list((tmp_path / "elsewhere").iterdir())
    with alkstore.open("sqlite:///../jobs.db") as store:
        assert 1 == store.queue("q").stats().ready


def test_four_slashes_are_an_absolute_path() -> None:
    assert "/no such folder/jobs.db" == parse("sqlite:////no such folder/jobs.db").path


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a%20b.db", "a b.db"),
        ("a b.db", "a b.db"),
        ("100%.db", "100%.db"),
        ("%3F%23%25.db", "?#%.db"),
        ("%C3%A4.db", "ä.db"),
        ("ä.db", "ä.db"),
        ("%FF.db", "\udcff.db"),  # a file name is bytes
        (":memory", ":memory"),
        ("%3Amemory%3A", ":memory:"),  # a file, as ./:memory: is
        ("./:memory:", ":memory:"),
        ("file:x.db", "file:x.db"),
        ("a+b.db", "a+b.db"),
    ],
)
def test_names_are_decoded_as_in_any_url(written: str, meant: str) -> None:
    assert os.path.realpath(meant) == parse(f"sqlite:///{written}").path


def test_a_decoded_name_is_the_name_of_the_file(tmp_path: Path) -> None:
    with alkstore.open(f"sqlite:///{tmp_path}/a%20b%3Fc%23d%25.db", durability="relaxed"):
        assert (tmp_path / "a b?c#d%.db").exists()


def test_memory_is_memory() -> None:
    assert parse("sqlite:///:memory:").path is None


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite:jobs.db",
        "sqlite:/jobs.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://jobs.db",
        "sqlite://localhost/jobs.db",
        "sqlite://user:geheim@/jobs.db",
        "sqlite://user:geheim@host:99/jobs.db",
        "sqlite:///jobs.db?mode=ro",
        "sqlite:///jobs.db?",
        "sqlite:///jobs.db#part",
        "sqlite:///:memory:?cache=shared",
        "sqlite:///a%00b.db",
    ],
)
def test_what_names_no_file_is_refused_without_repeating_a_password(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(alkstore.ValidationError) as caught:
        alkstore.open(url)
    assert "geheim" not in str(caught.value)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "named"),
    [({"pool": 3}, "'pool'"), ({"timeout": 3, "pool_size": 3}, "'timeout'"), ({"pool_size": 0}, "pool_size")],
)
def test_unknown_and_impossible_options_are_named(path: Path, options: dict[str, Any], named: str) -> None:
    with pytest.raises(alkstore.ValidationError, match=named):
        alkstore.open(f"sqlite:///{path}", **options)
    assert not path.exists()


@pytest.mark.parametrize("size", [True, 1.0, "4", -1])
def test_a_pool_size_is_a_number_from_one(path: Path, size: object) -> None:
    with pytest.raises(alkstore.ValidationError, match="pool_size"):
        alkstore.open(f"sqlite:///{path}", pool_size=size)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(alkstore.ValidationError):
        alkstore.open("sqlite:////nowhere/\ud800.db")


@pytest.mark.parametrize(
    "name", ["a b.db", "50%.db", "%41.db", "what?.db", "#1.db", "q'uote.db", "ü.db", "file:x.db", "n\nl.db"]
)
def test_names_with_odd_characters_are_files_of_that_name(tmp_path: Path, name: str) -> None:
    with (
        alkstore.open("sqlite:///" + quote(str(tmp_path / name)), durability="relaxed") as store,
        store.transaction() as tx,
    ):
        tx.queue("q").enqueue(1)
        assert [str(tmp_path / name)] == [row[2] for row in tx.execute("PRAGMA database_list")]
    assert (tmp_path / name).stat().st_size


@pytest.mark.parametrize("name", ["a?b.db", "a#b.db", "100%.db", "100%25.db", "a b.db", "plain.db"])
def test_the_url_in_a_message_can_be_typed_again(name: str, tmp_path: Path) -> None:
    """It names the same file, whatever is in its name (S-2: the command that an error names works)."""
    path = str((tmp_path / name).resolve())
    assert path == parse(Location(path).url).path
