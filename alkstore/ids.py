"""Jobs' ids, as callers give them (clause Q-1)."""

from __future__ import annotations

from alkstore.errors import ValidationError
from alkstore.limits import ID_MAX


def check_id(value: object, name: str) -> int:
    """Return the id; raise ``ValidationError``, naming the argument, for what isn't an ``int``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be an int, not {type(value).__name__}")
    return int(value)


def can_exist(job_id: int) -> bool:
    """Say whether a job may have the id: no engine is asked for a number that its columns can't hold (Q-1)."""
    return 0 < job_id <= ID_MAX
