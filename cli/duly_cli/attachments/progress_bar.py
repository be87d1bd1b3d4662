"""A bar on a terminal that shows how far an upload or a fetch is; elsewhere nothing."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

import duly
from duly_cli.output.safe_text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WORTH_A_BAR = 8 * 1024 * 1024
"""Bytes: less is there before anybody has read the bar."""


class ProgressBar:
    """Shows a line for each file and phase, on stderr."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._lines: dict[tuple[str, str], TaskID] = {}
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def told(self, progress: duly.TransferProgress) -> None:
        """Show how far it is; other threads may call this."""
        if not self._is_shown or progress.total_bytes < _WORTH_A_BAR:
            return
        shown = self._progress = self._progress or _start()
        key = progress.phase, progress.name
        if key not in self._lines:
            text = f"{progress.phase} {one_line(progress.name)}"
            self._lines[key] = shown.add_task(text, total=progress.total_bytes)
        shown.update(self._lines[key], completed=progress.done_bytes)


def _start() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    progress.start()
    return progress
