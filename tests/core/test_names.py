"""Names, as a pure function (N-1, N-2)."""

from __future__ import annotations

from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore.errors import ValidationError
from alkstore.names import check_name

plain = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=200)


@given(plain.filter(lambda name: not name.startswith("_")))
def test_a_name_comes_back_as_it_is(name: str) -> None:
    """Nothing is stripped, folded or normalised."""
    assert name == check_name(name, "queue name")


@given(plain, st.integers(0, 200), st.characters(categories=("Cc", "Cs")))
def test_one_control_or_surrogate_spoils_a_name(name: str, place: int, character: str) -> None:
    """Wherever it stands."""
    with pytest.raises(ValidationError):
        check_name(name[:place] + character + name[place:], "queue name")


@pytest.mark.parametrize(("length", "good"), [(0, False), (1, True), (200, True), (201, False), (10**6, False)])
def test_a_name_has_1_to_200_characters(length: int, good: bool) -> None:
    """Characters, and not bytes."""
    name = "\N{PILE OF POO}" * length
    if good:
        assert name == check_name(name, "queue name")
    else:
        with pytest.raises(ValidationError, match="1 to 200"):
            check_name(name, "queue name")


def test_the_message_says_what_was_to_be_named() -> None:
    """So that a wrong worker id isn't looked for among the queues."""
    with pytest.raises(ValidationError, match="worker_id"):
        check_name("", "worker_id")


@pytest.mark.parametrize("value", [None, 1, b"emails", ["emails"], object])
def test_only_a_str_is_a_name(value: object) -> None:
    """Nothing is converted."""
    with pytest.raises(ValidationError, match="must be a str"):
        check_name(value, "queue name")


def test_a_subclass_of_str_becomes_a_plain_one() -> None:
    """Drivers and comparisons see the text itself."""

    class Kind(StrEnum):
        EMAILS = "emails"

        def __str__(self) -> str:
            return "something else"

    name = check_name(Kind.EMAILS, "queue name")

    assert (str, "emails") == (type(name), name)


@pytest.mark.parametrize("name", ["_", "_emails", "__init__"])
def test_a_leading_underscore_is_the_librarys_own(name: str) -> None:
    """And says so."""
    with pytest.raises(ValidationError, match="library's own"):
        check_name(name, "queue name")
