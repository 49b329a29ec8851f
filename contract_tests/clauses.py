"""Every clause that the suite judges: its id, what it asks in one sentence, and the capability that it needs.

``docs/contract.md`` has them in full, under the same ids. Clauses of what isn't built yet (streams, outbox) come with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import pytest

Capability: TypeAlias = Literal["durable", "processes", "transactions", "join", "notify", "sql", "results"]
"""A field of ``alkstore.capabilities.Capabilities``."""

Test = TypeVar("Test", bound=Callable[..., object])


class Clause(NamedTuple):
    """One clause of the contract."""

    id: str
    says: str
    needs: Capability | None = None
    """The capability without which the clause asks nothing of an engine; ``None``: it asks it of every engine."""


_ALL: Final = (
    # --- names
    Clause(
        "N-1", "Names and worker ids are 1 to 200 characters without controls or lone surrogates, compared exactly."
    ),
    Clause("N-2", "Names that start with an underscore are the library's own, and refused."),
    Clause("N-3", "A name is not registered anywhere: making a handle does no I/O and leaves no trace."),
    Clause("N-4", "Stores in different places never see each other's jobs."),
    # --- store
    Clause("S-1", "A place opens as a store, and opens again as a store of the same jobs."),
    Clause("S-2", "Opening creates the schema, safely for many at once; with migrate=False it says what is missing."),
    Clause("S-3", "Closing may be repeated, and whatever was made from a closed store refuses use."),
    Clause("S-4", "A store may be shared by threads, and survives a fork."),
    Clause("S-5", "Every error raised on purpose is an AlkstoreError, of the class that says what to do about it."),
    Clause("S-6", "No message and no repr shows a password."),
    Clause("S-7", "The capabilities are one frozen, declared object."),
    # --- options
    Clause("O-1", "A handle's options are stamped on the jobs it enqueues, and a job goes by its own stamps."),
    Clause("O-2", "A job may have a delay or run_at, a priority, an expiry, a budget and headers of its own."),
    Clause(
        "O-3", "An enqueue reads the clock once, so that times agree to the microsecond, and stores resolved values."
    ),
    Clause("O-4", "An unknown option, a wrong type or a value out of range is refused, and nothing is written."),
    # --- enqueue
    Clause("Q-ENQ-1", "An enqueued job is committed when its id is returned, and no id is ever used again."),
    Clause("Q-ENQ-2", "A payload comes back equal and of the same types; what can't is refused with its path."),
    Clause("Q-ENQ-3", "Many jobs are enqueued all or none, and the i-th id belongs to the i-th item."),
    Clause("Q-ENQ-4", "After the commit the queue's waiters are woken, and a wake that fails harms nothing."),
    # --- claim
    Clause("Q-CLAIM-1", "A claim gives at most as many jobs as were asked for."),
    Clause("Q-CLAIM-2", "A job is in at most one unexpired claim, however many ask at once."),
    Clause("Q-CLAIM-3", "Jobs are handed out by priority descending, then run_at, then id, in the list too."),
    Clause("Q-CLAIM-4", "Claimable is what is due, or lapsed with budget left, and never what is past its expiry."),
    Clause("Q-CLAIM-5", "A claim counts an attempt, names the worker, sets the deadline, and has a token of its own."),
    Clause("Q-CLAIM-6", "A claim first buries lapsed jobs without budget, at most 1,000, the oldest deadline first."),
    Clause("Q-CLAIM-7", "A payload that can't be decoded is handed out like any other, and fails only when read."),
    # --- handles
    Clause("J-1", "A handle's operations apply only while its own claim is current and in time, and else are False."),
    Clause("J-2", "An ack deletes the job."),
    Clause("J-3", "A heartbeat sets the deadline from now, and never adds up."),
    Clause("J-4", "A retry makes the job pending again with its error kept, or buries it when its budget is spent."),
    Clause("J-5", "A failure moves the job to the dead, with its error."),
    Clause("J-6", "A release gives the job back in its old place, this claim's attempt not counted."),
    Clause("J-7", "The retry delay is a whole number of seconds in the upper half of a capped, doubling curve."),
    Clause("J-8", "A move to the dead is whole: a job is never in both tables, nor in neither."),
    Clause("J-9", "An error text is kept verbatim, or made storable and cut with a mark: recording it can't fail."),
    Clause("J-10", "A handle's transaction commits the job's effects and its ack together.", "transactions"),
    # --- queue operations
    Clause("Q-1", "An operation sees only its own queue's jobs, and an impossible id is simply not there."),
    Clause("Q-2", "A batch of acks counts the claims that were valid, and passes over the rest in silence."),
    Clause("Q-3", "Cancelling deletes a live job, and its handle can't bring it back."),
    Clause("Q-4", "A job can be looked at, dead ones too, without any effect."),
    Clause(
        "Q-5", "A sweep buries what is past its expiry, deletes the dead past their retention, and counts the former."
    ),
    Clause("Q-6", "Statistics, pages, revival and purging go by the rows as they stand."),
    Clause("Q-7", "Every job ever enqueued is in exactly one state, or gone for exactly one reason."),
    Clause(
        "Q-8", "The store lists its queues, finds a job of any queue, and says how it is; a token rebuilds a handle."
    ),
    # --- transactions
    Clause("T-1", "A transaction commits on success and rolls back on an exception, which goes on up.", "transactions"),
    Clause("T-2", "Nothing of a transaction is seen before its commit, nor ever after its rollback.", "transactions"),
    Clause("T-3", "A joined connection stays the application's: jobs stand or fall with what it commits.", "join"),
    Clause("T-4", "A handle can be bound to a transaction, and a rolled-back claim never happened.", "transactions"),
    Clause("T-5", "Nothing runs outside an open transaction unnoticed, nor inside one that is over.", "transactions"),
    Clause("T-6", "Reading first and writing later waits for its turn, and never fails for it.", "transactions"),
    # --- wakes
    Clause(
        "W-1", "A listener gets every notification committed after it began, in the order of the commits.", "notify"
    ),
    Clause("W-2", "A listener iterates, waits with a timeout, ends when closed, and keeps bounded memory.", "notify"),
    Clause("W-3", "A listener outlives what it hears by, and is told where something may be lost.", "notify"),
    Clause("W-4", "Whoever waits for jobs is woken by whatever makes one ready, and looks now and then anyway."),
    # --- small print
    Clause("Z-1", "Durations go to 100 years and to the nearest microsecond; checks come in a fixed order."),
    Clause("Z-2", "Leaving a queue's block keeps its claims, and leaves the handle usable."),
    Clause("Z-3", "A handle's block retries on any exception, and leaves alone what was settled inside."),
    Clause(
        "Z-4",
        "Handles claimed in a transaction are ordinary after its commit, and dead after its rollback.",
        "transactions",
    ),
    Clause("Z-5", "Only a missing error takes the default text, and an exception becomes its type and text."),
    Clause("Z-6", "An ack may be called again when the outcome of the first one is unknown."),
    Clause("Z-7", "A batch of acks counts a job once, and refuses handles of another store; cancel races fairly."),
    Clause("Z-8", "In a transaction, sweeping and purging do one bounded batch.", "transactions"),
    Clause("Z-9", "An item is a payload or an Item, never a tuple or dict of both; keywords are defaults."),
    Clause("Z-10", "A codec is found by the stored name; subclasses of JSON's scalar types are refused."),
    Clause("Z-11", "A clock given at open rules that store, and no other."),
    Clause("Z-12", "Waiting for a lock ends after lock_timeout, with an error that says nothing happened."),
    Clause("Z-13", "Schema versions are major and minor."),
    Clause("Z-14", "A doorbell is rung after the commit, and what is still to be rung when a store is closed."),
    Clause("Z-15", "Names compare by code point, whatever the database's own collation."),
    Clause("Z-16", "Ordering, fencing, conservation and the queue operations are asked of every engine."),
    Clause(
        "Z-17", "A result commits with its ack and is kept for its time; a cancelled job leaves a tombstone.", "results"
    ),
)

CLAUSES: Final = {clause.id: clause for clause in _ALL}
"""All clauses by id, in the contract's order."""


def clause(*ids: str, needs: Capability | tuple[Capability, ...] = ()) -> Callable[[Test], Test]:
    """Tie a test to the clauses that it judges: ``@clause("Q-CLAIM-3", "Q-CLAIM-4")``.

    ``needs``: what the test needs of an engine beyond the capabilities of its clauses. Raises ``ValueError`` for an id that no
    clause has, so that a test can't cite what isn't there.
    """
    unknown = [name for name in ids if name not in CLAUSES]
    if unknown or not ids:
        raise ValueError(
            f"no clause is called {', '.join(unknown) or 'nothing'}; contract_tests/clauses.py has them all"
        )
    wanted = {CLAUSES[name].needs for name in ids} - {None}
    wanted.update((needs,) if isinstance(needs, str) else needs)
    return pytest.mark.clause(*ids, needs=tuple(sorted(filter(None, wanted))))
