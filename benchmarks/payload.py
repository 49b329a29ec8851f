"""What every job carries: about a hundred bytes of JSON, the same for everybody."""

from __future__ import annotations

import json
from typing import Any, Final


def payload(number: int = 0) -> dict[str, Any]:
    """Return a job's payload; the number tells which job it is."""
    return {"to": "somebody@example.org", "subject": "about a hundred bytes of payload", "n": number, "html": False}


def encoded(number: int = 0) -> bytes:
    """Return the payload in JSON, as compact as it gets."""
    return json.dumps(payload(number), separators=(",", ":")).encode()


ENCODED: Final = encoded()
"""A payload that was encoded beforehand: a bare driver has no codec, and is not charged for one."""
