"""Error texts, as a pure function (J-9, Z-5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore.errors import ValidationError
from alkstore.limits import ERROR_BYTES
from alkstore.texts import describe, error_text

any_text = st.text(st.characters())


@given(st.text())
def test_a_storable_text_is_kept_verbatim(text: str) -> None:
    """Of up to 64 KiB, without NUL and lone surrogates: the empty one too."""
    if "\0" not in text:
        assert text == error_text(text)


@given(any_text)
def test_any_text_becomes_storable(text: str) -> None:
    """Character for character, but for NUL and lone surrogates."""
    kept = error_text(text)
    assert kept is not None
    kept.encode()
    assert [
        "\ufffd" if character == "\0" or "\ud800" <= character <= "\udfff" else character for character in text
    ] == list(kept)


@given(any_text, st.integers(ERROR_BYTES - 20, ERROR_BYTES + 20), st.text(min_size=1, max_size=3))
def test_a_long_text_is_cut_with_a_mark(start: str, length: int, unit: str) -> None:
    """To at most 64 KiB of UTF-8, the mark included; what fits isn't cut."""
    text = (start + unit * (length // len(unit.encode("utf-8", "replace")) + 1))[: 2 * length]
    kept = error_text(text)
    assert kept is not None
    size = len(kept.encode())
    assert size <= ERROR_BYTES
    if kept.endswith("... (cut)") and not text.endswith("... (cut)"):
        assert size > ERROR_BYTES - 4  # no more is lost than the character that was split
        assert len(kept) - len("... (cut)") < len(text)
    else:
        assert len(text) == len(kept)


@pytest.mark.parametrize("size", [5 * 1024 * 1024, ERROR_BYTES + 1, ERROR_BYTES, ERROR_BYTES - 1])
def test_the_limit_is_64_kib(size: int) -> None:
    """To the byte."""
    kept = error_text("x" * size)
    assert kept is not None
    assert min(size, ERROR_BYTES) == len(kept)
    assert (size > ERROR_BYTES) == kept.endswith("... (cut)")


class Silent(Exception):
    """An exception whose text can't be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such address"), "ValueError: no such address"),
        (ValueError(), "ValueError"),
        (ValueError(""), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("a\0b\ud800"), "ValueError: a\ufffdb\ufffd"),
        (Silent(), "Silent: (unprintable: RuntimeError)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_exception_becomes_its_type_and_text(error: BaseException, text: str) -> None:
    """Or its type alone, where there is no text or it can't be had."""
    assert text == error_text(error)
    assert describe(error).split(":", maxsplit=1)[0] == text.split(":", maxsplit=1)[0]


def test_only_none_is_no_text() -> None:
    """The empty text is verbatim."""
    assert error_text(None) is None
    assert "" == error_text("")


@pytest.mark.parametrize("value", [5, b"no", ValueError, ["no"]], ids=repr)
def test_what_is_neither_text_nor_exception_is_refused(value: object) -> None:
    """A class of exceptions included."""
    with pytest.raises(ValidationError, match="error must"):
        error_text(value)
