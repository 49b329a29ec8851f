"""Every bound that the contract fixes, in one place."""

from __future__ import annotations

from typing import Final

NAME_CHARACTERS: Final = 200
"""Longest queue name or worker id, in characters (N-1)."""

PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1
"""Priorities are signed 32-bit integers (O-2)."""

MAX_ATTEMPTS_MAX: Final = 2**31 - 1

BACKOFF_CAP_MAX: Final = 3600
"""Largest cap of the retry curve, in seconds (J-7)."""

BACKOFF_BASE_MAX: Final = 2**31 - 1

HEADER_ENTRIES: Final = 32
HEADER_BYTES: Final = 8 * 1024
"""At most so many headers, and bytes of UTF-8 over all their keys and values (O-2)."""

PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""Default limit of an encoded payload (Q-ENQ-2)."""

RESULT_BYTES: Final = 1024 * 1024
"""Default limit of an encoded result (Z-17)."""

PAYLOAD_DEPTH: Final = 256
"""Deepest nesting of a JSON payload. Python 3.11 parses JSON on the interpreter's own stack of 1,000 frames, so that
a payload near that depth could be written but, from a deep call, not read."""

INTEGER_DIGITS: Final = 4300
"""Longest integer in a JSON payload: Python's own default limit for integers as text (Q-ENQ-2)."""

ERROR_BYTES: Final = 64 * 1024
"""Longest error text kept, in bytes of UTF-8, the mark included (J-9, Z-5)."""

ID_MAX: Final = 2**63 - 1

CHUNK_JOBS: Final = 1_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""``enqueue_many`` sends a chunk when it has so many jobs, or so many payload bytes (Q-ENQ-3)."""

BURY_PER_CLAIM: Final = 1_000
"""A claim moves at most so many exhausted jobs to the dead table (Q-CLAIM-6)."""

RIPEN_PER_UNIT: Final = 5_000
"""One unit of a claim readies at most so many jobs whose time has come; then it commits and goes on."""

SWEEP_BATCH: Final = 1_000
"""``sweep_expired`` and ``purge`` move or delete so many rows per transaction (Q-5, Z-8)."""

POLL_INTERVAL: Final = 5.0
"""Seconds after which whoever waits for jobs looks at the latest, whatever wakes him (W-4)."""

PAGE_MAX: Final = 10_000
"""Largest page of ``queue.jobs``."""
