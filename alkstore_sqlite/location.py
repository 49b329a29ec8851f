"""What an SQLite URL names: a file, or memory."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from alkstore.errors import ValidationError

FORMS: Final = "sqlite:///relative.db, sqlite:////absolute.db or sqlite:///:memory:"

_DRIVE: Final = re.compile(r"[A-Za-z]:[/\\]")


class Location(NamedTuple):
    """Where a database is."""

    path: str | None
    """The file, as an absolute path without links; ``None`` is memory."""

    @property
    def url(self) -> str:
        """The URL as one would type it, for messages."""
        if self.path is None:
            return "sqlite:///:memory:"
        # Only what would be read otherwise is spelt otherwise: the URL is to be typed again, and to be read by people.
        return "sqlite:///" + self.path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def parse(url: str) -> Location:
    """Return what the URL names; raise ``ValidationError`` for one that names nothing (S-1).

    A relative path is made absolute at once, so that a later ``chdir`` changes nothing. ``%41`` is ``A``, as in every
    URL; a percent sign that no two hexadecimal digits follow stands for itself.
    """
    _, separator, rest = url.partition("://")
    if not separator:
        raise ValidationError(f"an SQLite URL is {FORMS}")
    host, slash, path = rest.partition("/")
    if host or not slash:
        # Not repeated: what stands there may be a user and a password, meant for another database (S-6).
        raise ValidationError(f"an SQLite URL has no host, user or port: it is {FORMS}")
    if "?" in path or "#" in path:
        raise ValidationError(
            "an SQLite URL has no parameters and no fragment: options are keywords of alkstore.open, "
            "and a file whose name has a '?' or '#' is written with %3F or %23"
        )
    # File names are bytes on most systems, and need not be UTF-8.
    name = unquote(path, errors="surrogateescape")
    if not name:
        raise ValidationError(f"an SQLite URL names a file, or :memory:; it is {FORMS}")
    if "\0" in name:
        raise ValidationError("an SQLite URL can't name a file with a NUL in its name")
    if path == ":memory:":
        return Location(None)
    if os.name == "nt" and name.startswith("/") and _DRIVE.match(name, 1):
        name = name[1:]
    # With links resolved, as SQLite does: its -wal and -shm lie beside the file itself, and the line has to, too.
    try:
        os.fsencode(name)
        return Location(os.path.realpath(name))
    except UnicodeEncodeError:
        raise ValidationError("an SQLite URL can't name a file by characters that file names don't have here") from None
    except OSError as exc:  # the working directory is gone
        raise ValidationError(f"an SQLite URL with a relative path needs a working directory: {exc}") from exc
