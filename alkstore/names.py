"""What may be a name: of a queue, and of a worker (clauses N-1 and N-2)."""

from __future__ import annotations

import unicodedata

from alkstore.errors import ValidationError
from alkstore.limits import NAME_CHARACTERS


def check_name(value: object, kind: str) -> str:
    """Return ``value`` as a plain ``str``, or raise a ``ValidationError`` that names ``kind``.

    A name is compared exactly, so nothing is stripped, folded or normalised here: what can't be told apart at a
    prompt (control characters) or stored everywhere (lone surrogates) is refused instead.
    """
    if not isinstance(value, str):
        raise ValidationError(f"{kind} must be a str, not {type(value).__name__}")
    name = str.__str__(value)  # a plain str, even of a str enum whose own __str__ says something else
    if not 1 <= len(name) <= NAME_CHARACTERS:
        raise ValidationError(f"{kind} must have 1 to {NAME_CHARACTERS} characters, not {len(name)}")
    if name.startswith("_"):
        raise ValidationError(f"{kind} {name!r} must not start with '_': such names are the library's own")
    if not (name.isascii() and name.isprintable()):
        for character in name:
            category = unicodedata.category(character)
            if category == "Cc":
                raise ValidationError(f"{kind} {name!r} must not contain control characters")
            if category == "Cs":
                raise ValidationError(f"{kind} {name!r} must not contain lone surrogates")
    return name
