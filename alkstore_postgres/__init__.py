"""Alkstore on PostgreSQL 14 and newer, through psycopg 3.

``open_engine`` is what the entry point loads. The modules, in reading order: ``location`` (URLs), ``schema`` and its
migrations, ``sql`` (with the essay on what the claim reads), ``executor`` (the operations), ``runner`` and ``transaction``
(how they run), ``pool`` and ``fork`` (connections), ``errors``, ``engine``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from alkstore.engine import Engine, EngineOptions
from alkstore.errors import UnknownEngineError

__all__ = ["open_engine"]


def open_engine(url: str, options: EngineOptions, extra: Mapping[str, object]) -> Engine:
    """Open a store's place in a PostgreSQL database (see ``alkstore.engine.EngineFactory``).

    Options of the engine's own (``extra``): ``schema`` (default ``"alkstore"``), ``pool_size``, ``connect_timeout``,
    ``max_lifetime``, ``prepare_threshold``; see ``location.locate``. Raises ``UnknownEngineError`` where the driver is
    not installed, ``ValidationError`` for an option or a URL, ``SchemaError``, and an ``EngineError`` where the database
    can't be reached.
    """
    # The driver is looked for here and not at the import: a missing one is an error of this engine only.
    if find_spec("psycopg") is None:
        raise UnknownEngineError("the PostgreSQL driver is not installed: pip install 'alkstore[postgres]'")
    try:
        from alkstore_postgres.engine import open_engine as open_with_driver
    except ImportError as exc:  # psycopg without a libpq that it can load
        raise UnknownEngineError(
            f"the PostgreSQL driver can't be loaded: {exc}; pip install 'alkstore[postgres]' brings all of it"
        ) from exc
    return open_with_driver(url, options, extra)
