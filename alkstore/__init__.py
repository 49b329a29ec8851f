"""Durable job queues in the database that an application already has: exact, and the same on every engine.

::

    import alkstore

    with alkstore.open("sqlite:///jobs.db") as store, store.queue("emails") as q:
        q.enqueue({"to": "a@example.org"})
        job = q.claim_one("worker-1")
        if job is not None:
            with job:  # acked when the block ends well, retried when it raises
                print(job.payload)
"""

from __future__ import annotations

from alkstore.capabilities import Capabilities
from alkstore.clock import Duration
from alkstore.codec import Codec
from alkstore.errors import (
    AlkstoreError,
    ClaimLostError,
    EngineBusyError,
    EngineError,
    EngineUnavailableError,
    NotSupportedError,
    OutcomeUnknownError,
    PayloadError,
    ResultError,
    ResultTimeoutError,
    SchemaError,
    StorageFullError,
    StoreClosedError,
    StoreCorruptError,
    TransactionError,
    UnknownEngineError,
    ValidationError,
)
from alkstore.hooks import Hooks
from alkstore.items import Item
from alkstore.options import Backoff, QueueOptions
from alkstore.protocols import Consumer, JobHandle, Listener, Queue, Store, Transaction
from alkstore.records import Health, Job, Notification, Outcome, QueueStats, Result, State
from alkstore.store import open, open_from  # noqa: A004 - alkstore.open is the name that the contract gives it
from alkstore.tasks import Task, TaskJob, Tasks
from alkstore.worker import Fail, Retry, RunningJob, Unhandled, Worker

__all__ = [
    "AlkstoreError",
    "Backoff",
    "Capabilities",
    "ClaimLostError",
    "Codec",
    "Consumer",
    "Duration",
    "EngineBusyError",
    "EngineError",
    "EngineUnavailableError",
    "Fail",
    "Health",
    "Hooks",
    "Item",
    "Job",
    "JobHandle",
    "Listener",
    "NotSupportedError",
    "Notification",
    "Outcome",
    "OutcomeUnknownError",
    "PayloadError",
    "Queue",
    "QueueOptions",
    "QueueStats",
    "Result",
    "ResultError",
    "ResultTimeoutError",
    "Retry",
    "RunningJob",
    "SchemaError",
    "State",
    "StorageFullError",
    "Store",
    "StoreClosedError",
    "StoreCorruptError",
    "Task",
    "TaskJob",
    "Tasks",
    "Transaction",
    "TransactionError",
    "Unhandled",
    "UnknownEngineError",
    "ValidationError",
    "Worker",
    "open",
    "open_from",
]
