"""Rows to records, by column name (see ``JobRow``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from alkstore.records import JobRow, Outcome, ResultRow, State

STATES: Final = {state.value: state for state in State}

OUTCOMES: Final = {None: None, **{outcome.value: outcome for outcome in Outcome}}

COLUMNS: Final = JobRow._fields
"""The order in which ``{live}`` and ``{dead}`` of ``sql.py`` give a row's values; a test holds them to it."""


def job_row(values: Sequence[Any]) -> JobRow:
    """Return the record of a row that was selected by ``{live}`` or ``{dead}``."""
    job_id, queue, state, *rest = values
    return JobRow(job_id, queue, STATES[state], *rest)


def result_row(values: Sequence[Any]) -> ResultRow:
    """Return the record of a row that was selected by ``RESULT``."""
    job_id, queue, outcome, *rest = values
    return ResultRow(job_id, queue, OUTCOMES[outcome], *rest)
