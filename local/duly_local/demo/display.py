"""What moves on the screen while the tasks run: a bar on a terminal, a line a second elsewhere."""

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINE_EVERY_S = 1.0


class Display(Protocol):
    """Shows how far the tasks are, and what happens meanwhile."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, done: int, running: int) -> None:
        """So many tasks are done, so many callbacks run now."""

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""


def make_display(console: Console, total: int) -> Display:
    """The one that suits the console."""
    return _Bar(console, total) if console.is_terminal else _Lines(console, total)


class _Bar:
    def __init__(self, console: Console, total: int) -> None:
        self._progress = Progress(
            TextColumn("  tasks"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TextColumn("done, {task.fields[running]} running"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._progress.add_task("tasks", total=total, running=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, done: int, running: int) -> None:
        self._progress.update(self._task, completed=done, running=running)

    def note(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)


class _Lines:
    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._started = self._last = time.monotonic()
        self._said_all = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, done: int, running: int) -> None:
        now = time.monotonic()
        all_done = done == self._total
        if not self._said_all and (all_done or now - self._last >= _LINE_EVERY_S):
            self._last = now
            self._said_all = all_done
            self.note(
                f"  {now - self._started:4.1f} s  {done:,} of {self._total:,} tasks done, {running} running"
            )

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
