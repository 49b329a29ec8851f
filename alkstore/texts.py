"""Error texts: what is written of a failed job, and the fixed reasons (clauses J-4, J-5, J-9, Q-CLAIM-6, Z-5)."""

from __future__ import annotations

import threading
from typing import Final

from alkstore.errors import ValidationError
from alkstore.limits import ERROR_BYTES

EXHAUSTED: Final = "max attempts exceeded"
FAILED: Final = "failed"
EXPIRED: Final = "expired"

_CUT: Final = "... (cut)"
_SURROGATES: Final = dict.fromkeys((0, *range(0xD800, 0xE000)), "\N{REPLACEMENT CHARACTER}")


def error_text(error: object) -> str | None:
    """Return what to keep of a failure: verbatim text, ``Type: text`` of an exception, ``None`` of ``None``.

    NUL and lone surrogates become U+FFFD, and what is past 64 KiB of UTF-8 is cut with a mark, so that every engine can
    store it: recording a failure can't itself fail. Raises ``ValidationError`` for what is neither.
    """
    if error is None:
        return None
    if isinstance(error, BaseException):
        return _storable(describe(error))
    if isinstance(error, str):
        return _storable(str.__str__(error))
    raise ValidationError(f"error must be a str, an exception or None, not {type(error).__name__}")


def describe(error: BaseException) -> str:
    """Return ``Type: text``, or ``Type`` where the exception has no text or can't be printed."""
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException as exc:  # the application's own __str__, which may raise anything, SystemExit say
        if isinstance(exc, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C, on top of it
        return f"{kind}: (unprintable: {type(exc).__name__})"
    return f"{kind}: {text}" if text else kind


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class, with its module unless that is the builtins'."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _storable(text: str) -> str:
    clipped = text[:ERROR_BYTES]  # no character takes less than a byte; a text of gigabytes isn't copied whole
    if not clipped.isascii() or "\0" in clipped:
        clipped = clipped.translate(_SURROGATES)
    data = clipped.encode("utf-8")
    if len(data) <= ERROR_BYTES and len(clipped) == len(text):
        return clipped
    # Cutting may split a character: its remains are dropped.
    return data[: ERROR_BYTES - len(_CUT)].decode("utf-8", errors="ignore") + _CUT
