"""Django, set up once in a process, with a `default` database that each test says."""
# Django has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["testserver"],
        DATABASES={},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=["tests.integrations.shop"],
        LOGGING_CONFIG=None,
        ROOT_URLCONF="tests.integrations.shop.urls",
        USE_TZ=True,
    )
    django.setup()

_connections: Any = connections


def _use(databases: dict[str, Any]) -> None:
    _connections.close_all()
    for alias in list(_connections):
        if hasattr(_connections._connections, alias):
            del _connections[alias]
    _connections.settings = _connections.configure_settings(databases)


@contextmanager
def database(default: dict[str, Any]) -> Generator[Any]:
    """Let Django's `default` database be this one; gives `connections["default"]`, on which nothing was done yet."""
    before = dict(_connections.settings)
    _use({"default": default})
    try:
        yield _connections["default"]
    finally:
        _use(before)
