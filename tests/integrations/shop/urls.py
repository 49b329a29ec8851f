"""Views that enqueue. With `ATOMIC_REQUESTS` each is a transaction, but for the last."""
# Django has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

from django.db import connection
from django.db import transaction as _transaction
from django.http import HttpResponse
from django.urls import path

import alkstore
from tests.integrations.shop.models import Order

transaction: Any = _transaction  # untyped, so that its decorators would be taken for what they decorate

stores: list[alkstore.Store] = []
"""The test's store is the last."""


def _place(number: int) -> None:
    Order.objects.create(id=number)
    stores[-1].join(connection).queue("q").enqueue(number)


def succeed(_request: object, number: int) -> Any:
    """Place an order."""
    _place(number)
    return HttpResponse(b"placed")


def fail(_request: object, number: int) -> Any:
    """Place an order, and raise."""
    _place(number)
    raise KeyError(number)


@transaction.non_atomic_requests
def fail_on_its_own(_request: object, number: int) -> Any:
    """Place an order in no transaction, and raise."""
    _place(number)
    raise KeyError(number)


urlpatterns: list[Any] = [
    path("succeed/<int:number>", succeed),
    path("fail/<int:number>", fail),
    path("fail-on-its-own/<int:number>", fail_on_its_own),
]
