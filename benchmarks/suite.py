"""What is measured side by side, by name."""

from collections.abc import Awaitable, Callable

from benchmarks import workloads
from benchmarks.footprint import footprint
from benchmarks.meter import Figures
from benchmarks.system import Running, System

Workload = Callable[[System, Running, int], Awaitable[Figures]]

WORKLOADS: dict[str, Workload] = {
    "submit_single": workloads.submit_single,
    "submit_bulk": workloads.submit_bulk,
    "drain": workloads.drain,
    "end_to_end_single": workloads.end_to_end_single,
    "end_to_end_bulk": workloads.end_to_end_bulk,
    "latency": workloads.latency,
    "one_call": workloads.one_call,
    "one_call_idle": workloads.one_call_idle,
    "one_call_running": workloads.one_call_running,
    "lateness": workloads.lateness,
    "spike": workloads.spike,
    "footprint": footprint,
}

BULK = frozenset({"submit_bulk", "end_to_end_bulk"})
"""Those that need a bulk API."""

ONCE = frozenset({"footprint"})
"""Those that one round is enough for: they are long, and hardly vary."""
