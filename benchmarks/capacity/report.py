"""The tables of docs/capacity.md, made of the points and the model: the page cannot say something else."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.capacity import fit
from duly_cli.capacity.costs import costs, list_prices
from duly_cli.capacity.model import PROCESSES, TERMS, Mix, Model, of_json
from duly_cli.capacity.rules import Limits, Load, Plan, plan

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"
_BLOCK = re.compile(r"(<!-- made by benchmarks/capacity: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_GB, _MIB = 1e9, 2**20
_KIB = 1_024.0

ATF = Load(9_000, 9_000, mix=Mix(payload=_KIB))
"""https://dropbox.tech/infrastructure/asynchronous-task-scheduling-at-dropbox"""
PAGERDUTY = Load(8_000 / 5, 3.1e6 / (30 * 86_400), mix=Mix(payload=_KIB, ahead=1.0))
"""3.1 million tasks a month, and 8,000 tasks of one spike, within the five seconds of ATF's promise."""


class Example(NamedTuple):
    """A load of the page's first table."""

    name: str
    load: Load
    limits: Limits = Limits()

    @property
    def title(self) -> str:
        """Return the name, with the average where it is less than the peak."""
        mean, peak = self.load.mean_tasks_per_second, self.load.tasks_per_second
        return f"{self.name} ({mean:,.1f} on average)".replace(".0 on", " on") if mean < peak else self.name


EXAMPLES = (
    Example("20 a second", Load(20, 5, mix=Mix(payload=_KIB))),
    Example("200 a second", Load(200, 50, mix=Mix(payload=_KIB))),
    Example("PagerDuty's Scheduler: 1,600 a second", PAGERDUTY),
    Example("2,000 a second", Load(2_000, 500, mix=Mix(payload=_KIB))),
    Example("ATF: 9,000 a second", ATF),
    Example("the same in calls of 10", Load(9_000, 9_000, mix=Mix(tasks_per_call=10, payload=_KIB))),
    Example(
        "the same, callbacks of 2 s", Load(9_000, 9_000, run_time=timedelta(seconds=2), mix=Mix(payload=_KIB))
    ),
    Example(
        "100,000 a second in calls of 10", Load(100_000, 100_000, mix=Mix(tasks_per_call=10, payload=_KIB))
    ),
)


def write(points: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Write the tables into the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), points, fitted), encoding="utf-8")


def page(text: str, points: Mapping[str, Any], fitted: Mapping[str, Any]) -> str:
    """Return the page with the tables of these points and this model."""
    model = of_json(fitted)
    makers: Mapping[str, Callable[[], Iterator[str]]] = {
        "sizes": lambda: sizes(model),
        "published": lambda: published(model),
        "bills": lambda: bills(model),
        "coefficients": lambda: coefficients(model),
        "standing": lambda: standing(model),
        "fit": lambda: fits(points, model),
        "stored": lambda: stored(model),
        "measured": lambda: measured(points, model),
    }
    return _BLOCK.sub(lambda found: f"{found[1]}{chr(10).join(makers[found[2]]())}\n{found[3]}", text)


def rows(heads: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table of Markdown."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    yield from (f"| {' | '.join(row)} |" for row in body)


def sizes(model: Model) -> Iterator[str]:
    """Yield what each example needs."""
    body = []
    for example in EXAMPLES:
        found = plan(example.load, example.limits, model)
        each = " each" if found.cells > 1 else ""
        body.append(
            [
                example.title,
                f"{found.cells:,}",
                f"{found.postgres_vcpus:,}{each}",
                f"{found.wal_bytes_per_s_at_most / _MIB:,.1f}{each}",
                _gb(found),
                f"{found.frontends:,}, {found.hscs:,}, {found.store_consumers:,}",
                f"{found.hosts:,} ({found.slots:,})",
                found.walls[0].name + f", {found.walls[0].share:.0%}",
            ]
        )
    heads = (
        "peak load",
        "cells",
        "cores of Postgres",
        "WAL, MiB/s",
        "disk, GB",
        "Frontends, HSCs, Store Consumers",
        "hosts (slots)",
        "nearest wall of a Postgres, used",
    )
    yield from rows(heads, body)


def published(model: Model) -> Iterator[str]:
    """Yield what the published loads need, by the model."""
    body = []
    for name, load in (("ATF", ATF), ("PagerDuty", PAGERDUTY)):
        for calls, mix in (
            ("one task a call", load.mix),
            ("calls of 10", replace(load.mix, tasks_per_call=10)),
        ):
            found = plan(replace(load, mix=mix), Limits(), model)
            body.append(
                [
                    f"{name}: {load.tasks_per_second:,.0f} a second at the peak, {calls}",
                    f"{found.cells:,}",
                    f"{found.postgres_cores:.1f} to {found.postgres_cores_at_most:.1f}",
                    f"{found.transactions_per_s:,.0f} to {found.transactions_per_s_at_most:,.0f}",
                    f"{found.frontends:,}, {found.hscs:,}",
                    f"{found.walls[0].name}, {found.walls[0].share:.0%}",
                ]
            )
    heads = (
        "load",
        "cells",
        "cores that each Postgres uses",
        "its commits a second",
        "Frontends, HSCs",
        "nearest wall, used",
    )
    yield from rows(heads, body)


def bills(model: Model) -> Iterator[str]:
    """Yield what each example costs a month."""
    prices = list_prices()
    names = [
        "Postgres, with a standby",
        "servers",
        "hosts",
        "storage, with a standby",
        "writes beyond what storage includes",
        "between zones: WAL and payloads",
    ]
    body = []
    for example in EXAMPLES:
        load, limits = example.load, example.limits
        lines = costs(load, limits, plan(load, limits, model), prices)
        by_name = {line.name: line.a_month for line in lines}
        whole = sum(by_name.values())
        millions = load.mean_tasks_per_second * 730 * 3_600 / 1e6
        body.append(
            [
                example.title,
                *(f"{by_name[each]:,.0f}" for each in names),
                f"{whole:,.0f}",
                f"{whole / millions:,.2f}",
            ]
        )
    yield from rows(["peak load", *names, f"all, {prices.currency} a month", "a million tasks"], body)


def _gb(found: Plan) -> str:
    size = found.disk_bytes / _GB
    return f"{size:,.0f}" if size >= 10 else f"{size:.1f}"


_MEANINGS = {
    "task": "a task that is scheduled",
    "run": "a task that runs",
    "call": "a call",
    "schedule_group": "a statement that writes tasks",
    "run_group": "a claim and its report",
    "kib": "1 KiB of payload",
    "ahead": "scheduled ahead",
    "in_sessions": "in a session",
    "with_resources": "with a resource",
    "sqs": "over SQS",
    "sqs_group": "a claim over SQS",
}


def coefficients(model: Model) -> Iterator[str]:
    """Yield the coefficients of CPU."""
    body = [
        [process, *(_number(model.cpu_us[process].get(term, 0.0)) for term in TERMS)] for process in PROCESSES
    ]
    yield from rows(["us", *(_MEANINGS[term] for term in TERMS)], body)


def _number(value: float) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def standing(model: Model) -> Iterator[str]:
    """Yield what is used with nothing to do, and by heartbeats."""
    body = [
        [process, f"{model.idle_cores[process] * 100:.2f}", _number(model.heartbeat_us[process])]
        for process in PROCESSES
    ]
    yield from rows(["process", "idle, % of a core", "us a heartbeat of a running task"], body)


def stored(model: Model) -> Iterator[str]:
    """Yield bytes a task."""
    base = sum(model.wal_bytes.get(term, 0.0) for term in ("task", "run"))
    body = [
        [_payload(payload), f"{size:,.0f}", f"{base + wal:,.0f}"]
        for (payload, size), (_, wal) in zip(model.kept_bytes, model.wal_bytes_of_payload, strict=True)
    ]
    yield from rows(["payload", "bytes of an ended task, with its indexes", "bytes of WAL"], body)


def _payload(size: float) -> str:
    return f"{size:,g} B" if size % 1024 else f"{size / 1024:g} KiB"


def fits(points: Mapping[str, Any], model: Model) -> Iterator[str]:
    """Yield measured and predicted CPU of each load; those that the fit did not see are in bold."""
    every = fit.points(points)
    body = []
    for whole, postgres in zip(
        fit.errors(model, every, "all"), fit.errors(model, every, "postgres"), strict=True
    ):
        mark = "**" if whole.case.held_out else ""
        body.append(
            [
                f"{mark}{whole.case.name}{mark}",
                f"{whole.rate:,.0f}",
                f"{whole.measured:,.0f}",
                f"{whole.with_measured_groups:+.0%}",
                f"{whole.from_load_alone:+.0%}",
                f"{postgres.measured:,.0f}",
                f"{postgres.with_measured_groups:+.0%}",
                f"{postgres.from_load_alone:+.0%}",
            ]
        )
    heads = (
        "load",
        "reached, tasks a second",
        "CPU of all, us a task",
        "error, groups known",
        "error, from the load",
        "CPU of Postgres",
        "error, groups known",
        "error, from the load",
    )
    yield from rows(heads, body)


def measured(points: Mapping[str, Any], model: Model) -> Iterator[str]:
    """Yield when and on what, and the largest errors."""
    told = model.measured
    worst = told["largest_error_of_held_out"]
    loop = [each["calibration"]["loop_cpu_s"] * 1e3 for each in points["loads"]]
    load = [each["calibration"]["load"] for each in points["loads"]]
    body = [
        ["date, commit", f"{told['at'][:10]}, {told['commit']}"],
        [
            "machine",
            f"{told['cores']} virtual cores ({told['processor']}), shared; load {min(load):.0f} to {max(load):.0f}; a fixed loop took {min(loop):.0f} to {max(loop):.0f} ms of CPU",
        ],
        ["Postgres, Python", f"{told['postgres']}, {told['python']}"],
        ["rounds", f"{told['rounds']}, in turns; each is a point of the fit"],
        [
            "largest error on loads that the fit did not see",
            f"{worst['with_measured_groups']:.0%} with the groups that were measured, {worst['from_load_alone']:.0%} from the load alone",
        ],
        ["WAL that one writer wrote in bulk", f"{model.wal_bytes_per_s / _MIB:.0f} MiB/s"],
        ["rows that eight writers committed, each by itself", f"{model.commits_per_s:,.0f} a second"],
    ]
    yield from rows(["", ""], body)
