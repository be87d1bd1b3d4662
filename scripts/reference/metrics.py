"""The page of metrics: every Counter, Gauge and Histogram of the services, found in their source."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.reference.markdown import code, page, sentence, table

_ROOT = Path(__file__).parents[2]
_TYPES = {"Counter": "counter", "MetricCounter": "counter", "Gauge": "gauge", "Histogram": "histogram"}
_PARTS = {
    "core/duly_core/process/telemetry.py": "Every process",
    "core/duly_core/cells": "Services with several cells",
    "core/duly_core/queues": "Store Consumer and Controller, with SQS",
    "services/frontend": "Frontend",
    "services/store_consumer": "Store Consumer",
    "services/autoscaler": "autoscaler",
    "services/hsc": "HSC",
    "services/console": "Console",
    "services/controller": "Controller",
    "services/executor": "Executor",
}
_INTRODUCTION = """
A process serves its metrics to Prometheus on `telemetry.metrics_listen`; there is no endpoint by default.
`duly server` serves those of all its services on one endpoint. The first Executor of a worker uses
`controller.executor_metrics_port`, the next one the next port.

Labels have bounded values: names of the registered lambdas that are used most (`telemetry.metrics_lambdas`; the others share
`other`), and fixed lists. No label holds a task id or a payload.
A histogram has the series `_bucket`, `_sum` and `_count`.
[Alerts](../operators/monitoring.md) says which to watch.
"""


class Metric(NamedTuple):
    """A metric as its definition says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def text() -> str:
    """Return the page."""
    parts = []
    for path, title in _PARTS.items():
        rows = [
            (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), sentence(metric.help))
            for metric in sorted(_metrics(_ROOT / path))
        ]
        parts.append(f"## {title}\n\n" + table(("metric", "type", "labels", "meaning"), rows))
    return page("Metrics", _INTRODUCTION, *parts)


def names() -> set[str]:
    """Return the names of all metrics, wherever they are defined."""
    return {metric.name for metric in all_metrics()}


@functools.cache  # it parses all sources, and tests ask often
def all_metrics() -> tuple[Metric, ...]:
    """Return all metrics, wherever they are defined."""
    folders = ("core", "services", "server", "local", "cli", "sdk")
    return tuple(metric for folder in folders for metric in _metrics(_ROOT / folder))


def undocumented() -> list[str]:
    """Return the metrics that are defined outside the parts of the page."""
    return sorted(names() - {metric.name for path in _PARTS for metric in _metrics(_ROOT / path)})


def _metrics(path: Path) -> Iterator[Metric]:
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TYPES:
                values = [_value(argument) for argument in node.args]
                if values and str(values[0]).startswith("duly_"):
                    labels = next((value for value in values[2:] if isinstance(value, list)), [])
                    yield Metric(str(values[0]), _TYPES[node.func.id], tuple(labels), str(values[1]))


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
