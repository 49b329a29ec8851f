"""What a schema's version means, for every engine: versions are major.minor (clauses S-2, Z-13)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from alkstore.errors import SchemaError

Version: TypeAlias = tuple[int, int]
"""Major and minor: code opens a newer minor, never a newer major, so that rolling deploys work."""

COMMAND = "python -m alkstore migrate"
"""The command that mends an absent or older schema."""


class Migration(NamedTuple):
    """A numbered file, and the version that the schema has after it."""

    file: str
    version: Version


def spell(version: Version) -> str:
    """Return the version as people write it: ``1.0``."""
    return f"{version[0]}.{version[1]}"


def is_current(version: Version | None, code: Version, where: str) -> bool:
    """Say whether code written for the version ``code`` can use the schema as it is, and has nothing to upgrade.

    Raises ``SchemaError`` for a schema of a newer major version, which is never touched.
    """
    if version is None:
        return False
    if version[0] > code[0]:
        raise SchemaError(
            f"the schema in {where} has version {spell(version)}, newer than {spell(code)}, which this alkstore was "
            f"written for: upgrade alkstore; a newer schema is never touched"
        )
    return version >= code


def refusal(version: Version | None, where: str, arguments: str) -> SchemaError:
    """Return the error for a schema that isn't current and must not be migrated here, naming the command that mends it.

    ``arguments`` are the command's, without a password.
    """
    state = "has no alkstore schema" if version is None else f"has the older schema version {spell(version)}"
    return SchemaError(f"{where} {state}; run: {COMMAND} {arguments}")
