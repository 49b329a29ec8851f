"""Rows to records, by column name (see ``JobRow``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from alkstore.records import JobRow, State

STATES: Final = {state.value: state for state in State}

COLUMNS: Final = JobRow._fields
"""The order in which ``{live}`` and ``{dead}`` of ``sql.py`` give a row's values; a test holds them to it."""


def job_row(values: Sequence[Any]) -> JobRow:
    """Return the record of a row that was selected by ``{live}`` or ``{dead}``."""
    job_id, queue, state, *rest = values
    return JobRow(job_id, queue, STATES[state], *rest)
