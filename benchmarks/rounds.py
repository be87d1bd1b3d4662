"""Runs what was asked for in rounds (A B C, A B C, ...), so that the machine's drift hits all alike."""

import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.calibration import calibrate
from benchmarks.floor import floor
from benchmarks.floor_call import floor_call
from benchmarks.floor_latency import floor_latency
from benchmarks.meter import Figures
from benchmarks.suite import BULK, ONCE, WORKLOADS
from benchmarks.system import BenchmarkError, System
from duly_core.errors import DulyError

FLOOR = "floor"
"""What is measured with no system at all, as if it were one."""
FLOORS: dict[str, Callable[[Path, int], Awaitable[Figures]]] = {
    "floor": floor,
    "floor_latency": floor_latency,
    "floor_call": floor_call,
}
NO_API = "no such API"

Tell = Callable[["Measurement"], None]


@dataclass
class Measurement:
    """One workload on one system in one round."""

    round: int
    system: str
    workload: str
    tasks: int
    calibration: dict[str, float]
    figures: Figures = field(default_factory=Figures)
    problem: str = ""
    """Why there are no figures; empty: there are."""


async def measure(system: System, workload: str, number: int, tasks: int) -> Measurement:
    """One measurement, on services started for it alone."""
    with _folder() as folder:
        measurement = Measurement(number, system.name, workload, tasks, calibrate(folder))
        with _told_of(measurement, folder):
            async with system.running(folder) as running:
                if workload in BULK and not (await running.driver.ask("hello"))["bulk"]:
                    measurement.problem = NO_API
                    return measurement
                await running.start_workers()
                measurement.figures = await WORKLOADS[workload](system, running, tasks)
    return measurement


@contextmanager
def _told_of(measurement: Measurement, folder: Path) -> Iterator[None]:
    """One that fails must not cost the others' figures: the reason stands where they would."""
    try:
        yield
    except (BenchmarkError, DulyError, OSError) as error:
        measurement.problem = f"{type(error).__name__}: {error}{_logs(folder)}"
    except Exception:  # noqa: BLE001 (see above)
        measurement.problem = traceback.format_exc() + _logs(folder)


def _logs(folder: Path) -> str:
    """The end of what each process said."""
    said = []
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        said += [f"\n  {log.name}: {line[:300]}" for line in lines]
    return "".join(said)


async def run_rounds(
    systems: Sequence[System], workloads: Sequence[str], runs: int, tasks: int, tell: Tell
) -> None:
    """All of it."""
    without: set[tuple[str, str]] = set()
    for number in range(1, runs + 1):
        for workload in workloads:
            if workload in FLOORS:
                tell(await measure_floor(workload, number, tasks))
                continue
            for system in systems:
                if (system.name, workload) in without or (number > 1 and workload in ONCE):
                    continue
                measurement = await measure(system, workload, number, tasks)
                if measurement.problem == NO_API:
                    without.add((system.name, workload))
                tell(measurement)


async def measure_floor(workload: str, number: int, tasks: int) -> Measurement:
    """What no system of this layout can go below."""
    with _folder() as folder:
        measurement = Measurement(number, FLOOR, workload, tasks, calibrate(folder))
        with _told_of(measurement, folder):
            measurement.figures = await FLOORS[workload](folder, tasks)
    return measurement


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # Postgres runs as another user, if we are root
        yield folder


def summary(measurement: Measurement) -> str:
    """One line for the terminal."""
    values = measurement.figures.values
    told = ", ".join(f"{name} {value:,.1f}" for name, value in values.items()) or measurement.problem
    cpu = sum(measurement.figures.cpu_us_per_task.values())
    costs = f", CPU {cpu:,.0f} us a task" if cpu else ""
    return f"round {measurement.round}  {measurement.workload:18} {measurement.system:14} {told}{costs}"
