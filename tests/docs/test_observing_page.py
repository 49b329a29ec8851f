"""The page on seeing in is complete: every hook, record, span and metric."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

import alkstore
from alkstore import hooks, otel
from alkstore.prometheus import Metrics
from tests.docs.test_pages import documented, first_example

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "observing.md").read_text(encoding="utf-8")


def test_every_hook_has_a_row() -> None:
    named = {name for name, value in vars(alkstore.Hooks).items() if inspect.isfunction(value)}
    assert "died" in named
    assert documented(PAGE, named) == named


def test_every_record_and_its_fields_are_named() -> None:
    records = [value for value in vars(hooks).values() if dataclasses.is_dataclass(value)]
    named = {record.__name__ for record in records if isinstance(record, type)}
    named |= {field.name for record in records for field in dataclasses.fields(record)}
    assert {"Enqueued", "waited"} <= named
    assert {name for name in named if f"`{name}`" in PAGE} == named


def test_every_metric_of_opentelemetry_and_every_argument_has_a_row() -> None:
    created = re.findall(r"create_(?:counter|histogram)\(\s*\"([\w.]+)\"", inspect.getsource(otel))
    named = {*created, *inspect.signature(otel.Tracing).parameters}
    assert len(created) == 6
    assert documented(PAGE, named) == named


def test_every_attribute_of_opentelemetry_is_named() -> None:
    named = set(re.findall(r"\"((?:messaging|alkstore|error)\.[\w.]+)\"", inspect.getsource(otel)))
    assert {name for name in named if f"`{name}`" in PAGE} == named


def test_every_metric_of_prometheus_has_a_row() -> None:
    registry = CollectorRegistry()
    with alkstore.open("sqlite:///:memory:") as store:
        Metrics(registry).watch(store)
        families = list(registry.collect())
    named = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert len(named) == 11
    assert documented(PAGE, named) == named


def test_the_first_example_runs(tmp_path: Path) -> None:
    program = first_example(PAGE) + (
        "store.queue('q').enqueue('a')\nhandle = store.queue('q').claim_one('w')\nassert handle.fail('no')\n"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.stderr, told.stdout) == ("", "job 1 of q is dead: no\n")
