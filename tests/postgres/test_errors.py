"""From SQLSTATE and from how far a statement had got to alkstore's errors (S-5)."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as pg

from alkstore import errors
from alkstore_postgres.errors import Sent, asks_again, translate


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("55P03", errors.EngineBusyError),
        ("57014", errors.EngineBusyError),
        ("40001", errors.EngineBusyError),
        ("40P01", errors.EngineBusyError),
        ("53100", errors.StorageFullError),
        ("53300", errors.EngineUnavailableError),
        ("25006", errors.EngineUnavailableError),
        ("XX001", errors.StoreCorruptError),
        ("XX002", errors.StoreCorruptError),
        ("42P01", errors.SchemaError),
        ("3F000", errors.SchemaError),
        ("42501", errors.EngineUnavailableError),
        ("23505", errors.EngineError),
        ("XX000", errors.EngineError),
    ],
)
def test_an_error_of_the_server_is_told_by_its_code(code: str, kind: type[Exception]) -> None:
    """Whatever the phase: the server has undone the statement, and said so."""
    for sent in Sent:
        error = translate(pg.lookup(code)("in any language"), sent, lost=False)
        assert type(error) is kind
        assert "in any language" in str(error)


def test_a_lost_connection_is_told_by_what_had_been_sent() -> None:
    lost = psycopg.OperationalError("gone")
    assert type(translate(lost, Sent.DECISIVE, lost=True)) is errors.OutcomeUnknownError
    assert type(translate(lost, Sent.HARMLESS, lost=True)) is errors.EngineUnavailableError


def test_every_other_error_of_the_driver_is_covered() -> None:
    """S-5: none comes out bare, the driver's own complaints included."""
    for kind in (psycopg.InterfaceError, psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError):
        assert type(translate(kind("odd"), Sent.DECISIVE, lost=False)) is errors.EngineError


def test_what_is_run_again() -> None:
    assert asks_again(pg.SerializationFailure())
    assert asks_again(pg.DeadlockDetected())
    assert not asks_again(pg.LockNotAvailable())
