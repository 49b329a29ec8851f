"""Django on SQLite: reading first and writing later (clause T-6)."""
# Django has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.db import connection
from django.db import transaction as _transaction

import alkstore
from tests.integrations.django_project import database
from tests.integrations.places import Place, payloads
from tests.integrations.shop.models import Order
from tests.integrations.test_django import create_tables, orders

transaction: Any = _transaction  # untyped, so that its decorators would be taken for what they decorate

_ENQUEUE = """
import sys
import alkstore

with alkstore.open(sys.argv[1], lock_timeout=float(sys.argv[2])) as store:
    try:
        store.queue("q").enqueue("theirs")
    except alkstore.EngineBusyError:
        print("busy")
    else:
        print("enqueued")
"""


def enqueue_in_another_process(place: Place, lock_timeout: float) -> str:
    """Enqueue in a process of its own, and return what became of it."""
    done = subprocess.run(
        [sys.executable, "-c", _ENQUEUE, place.url, str(lock_timeout)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_on_sqlite_a_block_that_read_before_another_process_wrote_is_busy_and_told_of_transaction_mode(
    sqlite_place: Place,
) -> None:
    """Clause T-6: SQLite lets a deferred transaction write no more; nothing is lost, and Django's block rolls back."""
    place = sqlite_place
    with alkstore.open(place.url, **place.options) as store, database(place.django()) as wrapper:
        create_tables(wrapper)
        with pytest.raises(alkstore.EngineBusyError, match="transaction_mode"), transaction.atomic():
            assert [] == orders()
            assert "enqueued" == enqueue_in_another_process(place, 30)
            store.join(connection).queue("q").enqueue("mine")
        with transaction.atomic():
            store.join(connection).queue("q").enqueue("mine, begun anew")
        assert ["theirs", "mine, begun anew"] == payloads(store)


def test_on_sqlite_with_transaction_mode_a_block_may_read_first_and_write_later(sqlite_place: Place) -> None:
    """Clause T-6: the block has the write lock from its beginning, so that others wait for it."""
    place = sqlite_place
    settings = place.django(OPTIONS={"transaction_mode": "IMMEDIATE"})
    with alkstore.open(place.url, **place.options) as store, database(settings) as wrapper:
        create_tables(wrapper)
        with transaction.atomic():
            assert [] == orders()
            assert "busy" == enqueue_in_another_process(place, 0.05)
            Order.objects.create(id=1)
            store.join(connection).queue("q").enqueue("mine")
        assert "enqueued" == enqueue_in_another_process(place, 30)
        assert ([1], ["mine", "theirs"]) == (orders(), payloads(store))
