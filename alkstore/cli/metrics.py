"""``alkstore worker --metrics-port``: metrics for Prometheus, over HTTP, while the worker runs."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from alkstore.prometheus import Metrics

_LOG: Final = logging.getLogger("alkstore.worker")


@contextmanager
def served(host: str, port: int | None) -> Generator[Metrics | None]:
    """Serve metrics for as long as the block lasts, and give what collects them; nothing where there is no port."""
    if port is None:
        yield None
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from alkstore.prometheus import Metrics
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise click.UsageError("--metrics-port needs prometheus-client: pip install 'alkstore[prometheus]'") from exc
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as exc:
        raise click.UsageError(f"metrics can't be served on {host} port {port}: {exc.strerror or exc}") from exc
    try:
        _LOG.info("metrics are served on http://%s:%d/metrics", host, server.server_port)
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
