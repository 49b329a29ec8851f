"""For the tests of an application: time that stands still, jobs that are done at once, and questions with readable answers.

What passes with it behaves the same in production: jobs are in a store, claimed and settled by a worker. pytest isn't needed;
its fixtures are in ``alkstore.testing.plugin``.
"""

from __future__ import annotations

from alkstore.testing.asserting import assert_enqueued, assert_not_enqueued
from alkstore.testing.clock import FrozenClock
from alkstore.testing.draining import Drained, drain
from alkstore.testing.inlining import inline

__all__ = ["Drained", "FrozenClock", "assert_enqueued", "assert_not_enqueued", "drain", "inline"]
