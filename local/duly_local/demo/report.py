"""What the demo prints: the input, the parts, the table, the verdict."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from duly import Priority
from duly_local.demo.figures import Row
from duly_local.demo.files import Input
from duly_local.demo.parts import Part
from duly_local.demo.verdict import Claim
from duly_local.demo.workload import PlannedTask

_FAULTS_SHOWN = 5


class Report:
    """Prints to one console; widths fit 80 columns."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str = "") -> None:
        """One line as it is."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def input(self, found: Input) -> None:
        """What is indexed."""
        self.line(f"Indexing every file under {found.directory}")
        self.line(
            f"  {len(found.files):,} files, {found.size / 1e6:,.1f} MB; each is a task: its SHA-256, size and lines"
        )
        if found.left_out:
            self.line(f"  left out: {found.reasons}")

    def parts(self, versions: Mapping[str, str], queue: str, parts: Iterable[Part]) -> None:
        """What it runs on."""
        carrier = (
            "SQS, through boto3, on moto's server"
            if queue == "sqs"
            else "none: hosts claim what is due from the store"
        )
        self.line()
        self.line(f"It runs on   {', '.join(f'{name} {version}' for name, version in versions.items())}")
        self.line(f"Its queue    {carrier}")
        self.line("Its processes")
        for part in parts:
            name = "  " * part.depth + part.name
            port = f"port {part.port}" if part.port else ""
            self.line(f"  {name:<24} pid {part.pid:<8} {port}".rstrip())

    def scheduled(self, planned: Sequence[PlannedTask], seconds: float) -> None:
        """What was asked for."""
        ahead = sum(task.delay is not None for task in planned)
        failing = sum(task.fails_first for task in planned)
        self.line()
        self.line(f"Scheduled {len(planned):,} tasks in {seconds:.1f} s; from then on Duly may not lose them")
        self.line(f"  {ahead:,} of them 1 to 10 s ahead, the others due at once, in three priorities")
        self.line(f"  {failing:,} are to fail on their first attempt")

    def table(self, rows: Mapping[tuple[str, int, bool], Row], total: Row) -> None:
        """The figures by lambda, priority, and whether due at once or ahead."""
        table = Table(box=None, padding=(0, 1), pad_edge=False)
        table.add_column("lambda, priority, due", no_wrap=True)
        for name in ("tasks", "done", "attempts", "p50", "p95", "p99", "tasks/s"):
            table.add_column(name, justify="right", no_wrap=True)
        shown = ""
        for (name, priority, ahead), row in rows.items():
            if name != shown:
                table.add_row(name)
                shown = name
            table.add_row(f"  {Priority(priority).name:<7} {'ahead' if ahead else 'at once'}", *_cells(row))
        table.add_row("all", *_cells(total))
        self.line()
        self.console.print(table)
        self.line()
        self.line("p50, p95, p99: seconds from when a task was due to its first start. What is due at")
        self.line("once comes in one burst, and waits for those before it; what was scheduled ahead")
        self.line("tells how punctual Duly is, once the burst is through.")
        self.line("tasks/s: done, from the first start to the last end.")

    def verdict(self, claims: Iterable[Claim]) -> None:
        """What was shown, and what speaks against it."""
        self.line()
        self.line("What was found, with a log that each callback process keeps by itself:")
        for claim in claims:
            self.line(f"  {'ok    ' if claim.holds else 'FAILED'}  {claim.text}")
            if claim.remark:
                self.line(f"            {claim.remark}")
            for fault in claim.faults[:_FAULTS_SHOWN]:
                self.line(f"            {fault}")
            if len(claim.faults) > _FAULTS_SHOWN:
                self.line(f"            ... and {len(claim.faults) - _FAULTS_SHOWN:,} more")

    def end(self, seconds: float, *, passed: bool) -> None:
        """The last line."""
        self.line()
        self.line(f"{'All of it held' if passed else 'NOT all of it held'}; {seconds:.0f} s in all.")

    def kept(self, folder: Path, log: Path) -> None:
        """Where to look after a failure."""
        self.line(f"Kept for you: {folder} (the services' log is {log.name})")


def _cells(row: Row) -> Sequence[str]:
    latenesses = [f"{seconds:.3f}" for seconds in row.lateness_s.values()] or ["-"] * 3
    return [
        f"{row.tasks:,}",
        f"{row.done:,}",
        f"{row.executions:,}",
        *latenesses,
        f"{row.per_second:,.{0 if row.per_second >= 10 else 1}f}",
    ]
