"""Metrics for Prometheus, as a hook: ``alkstore.open(url, hooks=[Metrics()])`` (extra ``prometheus``).

``docs/observing.md`` lists them. ``alkstore worker --metrics-port`` serves them; an application serves its own registry as it
does already.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        "alkstore.prometheus needs prometheus-client: pip install 'alkstore[prometheus]'", name=exc.name
    ) from exc

from alkstore.errors import AlkstoreError, ValidationError
from alkstore.hooks import Claimed, Died, Enqueued, HookFailed, Hooks, Lost, Retried, Settled, Succeeded, Swept
from alkstore.protocols import Store
from alkstore.worker.job import RunningJob

_LOG: Final = logging.getLogger("alkstore")

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Seconds: from a job that does next to nothing to one of an hour."""


class Metrics(Hooks):
    """Counts what the store's hooks tell, and shows the depths of its queues when it is asked for.

    ``registry``: where they are registered, by default prometheus-client's own; once for each registry, else ``ValueError``.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._enqueued = Counter(
            "alkstore_enqueued_total", "Jobs that were enqueued, and committed.", ["queue"], registry=registry
        )
        self._claimed = Counter("alkstore_claimed_total", "Jobs that were claimed.", ["queue"], registry=registry)
        self._outcomes = Counter(
            "alkstore_outcomes_total",
            "Claims that ended: succeeded, retried, died or lost.",
            ["queue", "outcome"],
            registry=registry,
        )
        self._swept = Counter(
            "alkstore_swept_total", "Jobs that sweeps moved to the dead ones.", ["queue"], registry=registry
        )
        self._failures = Counter(
            "alkstore_hook_failures_total", "Calls of hooks that raised.", ["hook", "method"], registry=registry
        )
        self._running = Gauge("alkstore_running", "Handlers that run now.", ["queue"], registry=registry)
        self._waited = Histogram(
            "alkstore_wait_seconds",
            "How long jobs that were claimed had been due.",
            ["queue"],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._duration = Histogram(
            "alkstore_duration_seconds",
            "How long handlers took, by what became of the job.",
            ["queue", "outcome"],
            registry=registry,
            buckets=_BUCKETS,
        )

    def watch(self, store: Store) -> None:
        """Show the depths of a store's queues, asked of the database whenever the registry is; one store for each registry."""
        self._registry.register(_Depths(store))

    def enqueued(self, event: Enqueued) -> None:
        """Count them."""
        self._enqueued.labels(event.queue).inc(len(event.job_ids))

    def claimed(self, event: Claimed) -> None:
        """Count it, and how long it waited."""
        self._claimed.labels(event.queue).inc()
        self._waited.labels(event.queue).observe(event.waited.total_seconds())

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:
        """Show that it runs."""
        with self._running.labels(job.queue).track_inprogress():
            yield

    def succeeded(self, event: Succeeded) -> None:
        """Count it."""
        self._count(event, "succeeded")

    def retried(self, event: Retried) -> None:
        """Count it."""
        self._count(event, "retried")

    def died(self, event: Died) -> None:
        """Count it."""
        self._count(event, "died")

    def lost(self, event: Lost) -> None:
        """Count it."""
        self._count(event, "lost")

    def swept(self, event: Swept) -> None:
        """Count them."""
        self._swept.labels(event.queue).inc(event.moved)

    def hook_failed(self, event: HookFailed) -> None:
        """Count it."""
        self._failures.labels(event.hook, event.method).inc()

    def _count(self, event: Settled, outcome: str) -> None:
        self._outcomes.labels(event.queue, outcome).inc()
        if event.duration is not None:
            self._duration.labels(event.queue, outcome).observe(event.duration.total_seconds())


class _Depths(Collector):
    """Asks a store, at each scrape, how its queues are."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return their names; so nothing is asked of the database when this is registered."""
        return self._families()

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("alkstore_up", "1 where the store answered, else 0."),
            GaugeMetricFamily(
                "alkstore_jobs",
                "Jobs as they stand: ready, scheduled, processing or dead.",
                labels=["queue", "state"],
            ),
            GaugeMetricFamily(
                "alkstore_oldest_ready_age_seconds", "How long the oldest ready job has been due.", labels=["queue"]
            ),
        )

    def collect(self) -> Generator[GaugeMetricFamily]:
        """Ask; where the store doesn't answer, say so, and leave the rest of the scrape alone."""
        up, jobs, oldest = self._families()
        try:
            for name in self._store.queues():
                self._add(name, jobs, oldest)
        except AlkstoreError as exc:
            _LOG.warning("the queues' depths can't be had: %s", exc)
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield from (up, jobs, oldest)

    def _add(self, name: str, jobs: GaugeMetricFamily, oldest: GaugeMetricFamily) -> None:
        try:
            queue = self._store.queue(name)
        except ValidationError:  # other hands wrote it, with a name that the library refuses (N-1)
            return
        stats = queue.stats()
        for state in ("ready", "scheduled", "processing", "dead"):
            jobs.add_metric([name, state], getattr(stats, state))
        age = stats.oldest_ready_age
        oldest.add_metric([name], 0 if age is None else age.total_seconds())
