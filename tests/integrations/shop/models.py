"""The application's own row."""
# Django has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models


class Order(models.Model):
    """What the application writes beside its jobs."""

    objects: ClassVar[Any]
    state: Any = models.TextField(default="placed")
