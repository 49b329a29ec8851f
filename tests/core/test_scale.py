"""The one setting for rounds and examples."""

from __future__ import annotations

import pytest

from contract_tests.scale import examples, rounds


@pytest.mark.parametrize(
    ("scale", "n", "expected"),
    [
        (None, 30, 3),
        ("", 30, 3),
        ("0.1", 30, 3),
        ("1", 30, 30),
        ("0.1", 1, 1),
        ("0.001", 30, 1),
        ("2", 30, 60),
        (" 0.5 ", 5, 2),
    ],
)
def test_rounds_are_scaled_and_never_none(
    monkeypatch: pytest.MonkeyPatch, scale: str | None, n: int, expected: int
) -> None:
    """A tenth unless the environment says otherwise."""
    if scale is None:
        monkeypatch.delenv("ALKSTORE_TEST_SCALE", raising=False)
    else:
        monkeypatch.setenv("ALKSTORE_TEST_SCALE", scale)
    assert expected == rounds(n) == examples(n).max_examples


@pytest.mark.parametrize("scale", ["much", "0", "-1", "nan", "inf"])
def test_a_scale_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, scale: str) -> None:
    """With the variable's name."""
    monkeypatch.setenv("ALKSTORE_TEST_SCALE", scale)
    with pytest.raises(ValueError, match="ALKSTORE_TEST_SCALE"):
        rounds(1)
