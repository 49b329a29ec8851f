"""What is asked: one small program per question, by the name that ``--only`` takes."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Question
from benchmarks.questions import (
    claim_ack,
    claim_batches,
    enqueue,
    enqueue_many,
    growth,
    hammer,
    idle,
    memory,
    pick_up,
    snapshot,
    threads,
    worker,
)

QUESTIONS: Final[dict[str, Question]] = {
    "enqueue": enqueue.ask,
    "enqueue_many": enqueue_many.ask,
    "threads": threads.ask,
    "claim_ack": claim_ack.ask,
    "claim_batches": claim_batches.ask,
    "worker": worker.ask,
    "pick_up": pick_up.ask,
    "idle": idle.ask,
    "hammer": hammer.ask,
    "memory": memory.ask,
    "growth": growth.ask,
    "snapshot": snapshot.ask,
}
