"""The errors raised on purpose, arranged by what the caller can do about them (clause S-5).

::

    AlkstoreError
    ├── ValidationError (also ValueError)   the call is wrong: mend the argument it names
    │   └── PayloadError                    the payload can't be encoded, decoded, or is too large
    ├── StoreClosedError                    the store was closed: open another
    ├── UnknownEngineError                  no engine (or no driver) for the URL: install what it names
    ├── NotSupportedError                   this engine does not declare the capability
    ├── SchemaError                         absent, older or newer schema: run the command it names
    ├── TransactionError                    wrong place: a transaction is open here, is over, or was aborted
    ├── ClaimLostError                      the job is somebody else's by now: drop the work, it was rolled back
    ├── ResultError                         a task has come to no result: its job failed, was cancelled, or is gone
    │   └── ResultTimeoutError (also TimeoutError)  it hasn't yet: ask again
    └── EngineError                         the database did not do it
        ├── EngineUnavailableError          not reached, and nothing happened: safe to try again
        ├── OutcomeUnknownError             cut after it was sent: it happened whole, or not at all
        ├── EngineBusyError                 locked or timed out, and nothing happened: safe to try again
        ├── StorageFullError                no room left, and nothing happened
        └── StoreCorruptError               the database is damaged, or is not a database

The engines map their driver's error *codes* to these, never message texts, and keep the driver's exception as the
``__cause__`` (except where its text could hold a password, S-6). A driver's exception never comes out bare, but for
those of the application's own SQL in ``tx.execute`` (T-1).
"""

from __future__ import annotations


def shown(value: object) -> str:
    """Return a value as an error message shows it: its repr, cut short, or its type where it can't be printed."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - anybody's __repr__, or an integer past Python's limit for texts
        return f"that {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


class AlkstoreError(Exception):
    """The base of every error that alkstore raises on purpose."""


class ValidationError(AlkstoreError, ValueError):
    """An argument, option or name is not what it must be; nothing was written (O-4)."""


class PayloadError(ValidationError):
    """A payload can't be encoded (nothing was written) or decoded (``raw`` has its bytes) (Q-ENQ-2, Q-CLAIM-7)."""


class StoreClosedError(AlkstoreError):
    """The store, or what this was made from, was closed (S-3)."""


class UnknownEngineError(AlkstoreError):
    """No single installed engine answers to the URL's scheme, or its driver is not installed (S-1)."""


class NotSupportedError(AlkstoreError):
    """The engine does not declare the capability that the call needs (S-7)."""


class SchemaError(AlkstoreError):
    """The schema in the database is absent, older or newer than this code can use (S-2)."""


class TransactionError(AlkstoreError):
    """The call does not fit the transaction that is, or is no longer, open here (T-5)."""


class ClaimLostError(AlkstoreError):
    """The claim was not the job's current one any more, so its effects were rolled back (J-10, Z-3)."""


class ResultError(AlkstoreError):
    """A task has come to no result: its job is dead, was cancelled, or has left nothing."""


class ResultTimeoutError(ResultError, TimeoutError):
    """A task has not come to a result in the time that was given; its job goes on."""


class EngineError(AlkstoreError):
    """The database did not carry the operation out."""


class EngineUnavailableError(EngineError):
    """The database was not reached; nothing happened, and the call may be made again."""

    lasting = False
    """Whether this store won't reach it any more, so that whoever tries again tries in vain: another is to be opened."""


class OutcomeUnknownError(EngineError):
    """The connection was cut after a write was sent: all of it happened, or nothing (Z-6)."""


class EngineBusyError(EngineError):
    """A lock or a free connection did not come within ``lock_timeout``; nothing happened (Z-12)."""


class StorageFullError(EngineError):
    """The database has no room left; nothing happened."""


class StoreCorruptError(EngineError):
    """The database is damaged, or the file is not a database."""
