"""The errors, against the tree that their module draws (S-5)."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import alkstore
from alkstore import errors
from alkstore.errors import shown

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == errors.__name__
}


def drawn() -> dict[str, str | None]:
    """Read the tree in the docstring: each class with the one it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)(\w+Error)\b", line)
        if found is not None:
            depth = len(found[1]) // 4
            del path[depth:]
            parents[found[2]] = path[-1] if path else None
            path.append(found[2])
    return parents


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class is drawn, under its base."""
    assert {
        name: None if kind is errors.AlkstoreError else kind.__bases__[0].__name__ for name, kind in CLASSES.items()
    } == drawn()


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_public_and_explained(name: str) -> None:
    """It can be had from ``alkstore``, derives from the one root, and has a docstring of its own."""
    kind = CLASSES[name]

    assert kind is getattr(alkstore, name)
    assert name in alkstore.__all__
    assert issubclass(kind, errors.AlkstoreError)
    assert (kind.__doc__ or "").strip()


def test_a_wrong_argument_is_a_value_error() -> None:
    """And so is a payload that can't be encoded; what the database did isn't."""
    assert ["ValidationError", "PayloadError"] == [
        name for name, kind in CLASSES.items() if issubclass(kind, ValueError)
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_errors_survive_pickling(name: str) -> None:
    """A process pool hands them to the parent as they are."""
    back = pickle.loads(pickle.dumps(CLASSES[name]("what happened")))  # noqa: S301 - our own bytes

    assert (CLASSES[name], ("what happened",)) == (type(back), back.args)


class Unprintable:
    """Something whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "'a'"), (Unprintable(), "that Unprintable"), (10**5000, "that int"), ("x" * 200, "'" + "x" * 76 + "...")],
    ids=["a text", "no repr", "too many digits", "a long text"],
)
def test_a_message_can_show_anything(value: object, text: str) -> None:
    """A wrong value is named as far as it can be, and never makes the message fail."""
    assert text == shown(value)
