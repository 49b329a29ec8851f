"""What an engine declares that it can do (clause S-7)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do beyond the queue clauses, which every engine keeps.

    The front refuses what isn't declared with ``NotSupportedError``; the contract suite skips the clauses of what isn't
    declared, and holds the engine to those of what is. What an engine doesn't mention it doesn't declare.
    """

    durable: bool
    """What was committed survives the death of the process, and of the database's."""

    processes: bool
    """Stores in several processes may share one database."""

    transactions: bool
    """``store.transaction()``, its savepoints, and ``handle.transaction()`` (T-1, T-2, T-4 to T-6, J-10)."""

    sql: bool
    """``tx.execute``: the application's own statements inside the transaction (T-1)."""

    join: bool = False
    """``store.join``: the same over a connection that the application has open (T-3)."""

    notify: bool = False
    """``store.notify`` and ``store.listen``, and waiters in other processes that are woken at once (W-1 to W-4)."""

    results: bool = False
    """``enqueue(keep_result=...)``: what a job came to is kept for a time, and can be asked and waited for (Z-17)."""
