"""One soak: a stack, a steady load, a sample each minute, and what is left at the end."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import CALLBACK_ENVIRONMENT
from benchmarks.cpu import seconds_by_process
from benchmarks.machine import machine
from benchmarks.soak.app import NOTES
from benchmarks.soak.processes import ProcessWatch
from benchmarks.soak.report import judged
from benchmarks.soak.store import StoreWatch, use_short_partitions
from benchmarks.system import Driver, driving
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import StackOptions
from duly_local.stack import LocalStack

APP = "benchmarks.soak.app:app"
EXECUTORS = 2

_READY_WITHIN = timedelta(minutes=3)
_ENDS_WITHIN = 300.0
_LOOK_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run."""

    seconds: float
    every: float
    """Seconds between samples."""
    rate: float | None
    """Tasks a second; None: half of what the calibration drains."""
    retention: float
    """Seconds for which ended tasks are kept, and the span of a partition; at least a minute."""
    calibrated: int
    """Tasks of the calibration."""
    folder: Path | None = None
    """Where the stack's data and logs are kept; None: a temporary folder."""


@dataclass(slots=True)
class Soak:
    """What was found."""

    plan: dict[str, Any]
    rate: float
    times: list[float] = field(default_factory=list)
    series: dict[str, list[float | None]] = field(default_factory=dict)
    kept: dict[str, list[float | None]] = field(default_factory=dict)
    """Series that are not judged."""
    load: dict[str, Any] = field(default_factory=dict)
    """The last sample of the client."""
    partitions_dropped: int = 0
    problems: list[str] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=machine)

    def add(self, at: float, values: dict[str, float], kept: dict[str, float]) -> None:
        """Add one sample."""
        for series, sample in ((self.series, values), (self.kept, kept)):
            for name in series.keys() | sample.keys():
                column = series.setdefault(name, [])
                column.extend([None] * (len(self.times) - len(column)))
                column.append(sample.get(name))
        self.times.append(at)

    def as_json(self) -> dict[str, Any]:
        """Return all of it, with the verdicts."""
        return judged({each.name: getattr(self, each.name) for each in fields(self)})


async def soak(plan: Plan, tell: Any = print) -> AsyncIterator[Soak]:
    """Run it; yields what was found so far after each sample, and at the end."""
    async with _stack(plan) as (stack, driver):
        await use_short_partitions(stack.dsn)
        rate = plan.rate
        if rate is None:
            drained = (await driver.ask("call", method="calibrate", arguments=[plan.calibrated]))["returned"]
            rate = drained / 2
            tell(f"the calibration drained {drained:,.0f} tasks/s")
        tell(f"{rate:,.1f} tasks/s for {plan.seconds / 60:,.1f} minutes", flush=True)
        found = Soak({**asdict(plan), "folder": str(plan.folder or "")}, rate)
        processes, store = ProcessWatch(os.getpid()), StoreWatch(stack.dsn)
        await driver.ask("call", method="start", arguments=[rate])
        began, before, used = time.monotonic(), time.monotonic(), seconds_by_process(os.getpid())
        while before < began + plan.seconds:
            await asyncio.sleep(max(0.0, before + plan.every - time.monotonic()))
            load = (await driver.ask("call", method="sample"))["returned"]
            values, kept = await store.sample()
            values |= processes.sample()
            values["size: claim journals"] = _size(stack.options.data_directory / "claim-journals")
            kept["log"] = _size(stack.options.data_directory.parent / "duly.log")
            kept["load average"] = os.getloadavg()[0]
            now, then_used = time.monotonic(), used
            used = seconds_by_process(os.getpid())
            for name, seconds in used.items():
                to = kept if name in {"client", "other"} else values
                label = "supervisor" if name == "bench" else name
                to[f"cpu: {label}"] = (seconds - then_used[name]) / (now - before) * 100
            values |= {f"lateness {part}": value for part, value in load["lateness_ms"].items()}
            before = now
            found.add(now - began, values, kept)
            found.load, found.partitions_dropped = load, len(store.dropped)
            found.problems = _problems(load, processes.started_again)
            yield found
        await driver.ask("call", method="stop")
        left = await _await_ends(driver)
        found.load = (await driver.ask("call", method="sample"))["returned"]
        found.problems = _problems(found.load, processes.started_again)
        found.problems += [f"{left} tasks had not ended {_ENDS_WITHIN:g} s after the load"] if left else []
        if found.load["expected"]:
            missing = ", ".join(map(str, found.load["missing"]))
            found.problems.append(f"{found.load['expected']} tasks ended without a run: {missing}")
        yield found


def _problems(load: dict[str, Any], started_again: list[str]) -> list[str]:
    told = [f"{count} errors of {name}" for name, count in load["errors"].items()]
    if started_again:
        told.append(f"processes ended or were started again: {', '.join(started_again)}")
    if load["started_though_cancelled"]:
        told.append(f"{load['started_though_cancelled']} cancelled tasks ran")
    if load["held_back"]:
        told.append(f"the stack did not keep up: the load was held back {load['held_back']} times")
    return told


def _size(path: Path) -> float:
    """MiB of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file()) / 2**20


async def _await_ends(driver: Driver) -> int:
    deadline = time.monotonic() + _ENDS_WITHIN
    while left := int((await driver.ask("left"))["left"]):
        if time.monotonic() > deadline:
            return left
        await asyncio.sleep(_LOOK_EVERY)
    return 0


@asynccontextmanager
async def _stack(plan: Plan) -> AsyncIterator[tuple[LocalStack, Driver]]:
    with tempfile.TemporaryDirectory(prefix="duly-soak-", ignore_cleanup_errors=True) as name:
        folder = plan.folder or Path(name)
        folder.chmod(0o711)
        kept_for = f"{plan.retention:g}s"
        os.environ |= {
            **CALLBACK_ENVIRONMENT,
            NOTES: str(folder / "notes"),
            "DULY_STORE_RETENTION": kept_for,
            "DULY_STORE_DEAD_LETTER_RETENTION": kept_for,
            "DULY_STORE_PARTITION_SPAN": kept_for,
        }
        options = StackOptions(
            separate=True,
            data_directory=folder / "data",
            apps=(APP,),
            executors=EXECUTORS,
            profile="production",
            ports="free",
        )
        with (folder / "duly.log").open("ab") as log:
            async with LocalStack(
                options, MergedOutput(log), SupervisionTiming(ready_within=_READY_WITHIN)
            ) as stack:
                environment = {
                    "DULY_BENCH_FRONTEND": stack.frontend_address,
                    "DULY_BENCH_DSN": stack.dsn,
                    # as docs/clients.md advises client services
                    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
                }
                async with driving(sys.executable, "benchmarks.soak.load", environment, folder) as driver:
                    yield stack, driver
