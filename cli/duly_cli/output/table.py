"""Tables as lines of text, which fit a terminal without a break inside a word."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from types import MappingProxyType

from duly_cli.output.colour import Line, Span
from duly_cli.output.safe_text import one_line

_GAP = "  "
_LEAST = 24
"""Characters that the last column needs, or the rows are broken between their cells."""
_INDENT = "    "
_HAS_ALL: ContextVar[bool] = ContextVar("has_all", default=False)


def columns(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    left_out_first: Sequence[str] = (),
    styles: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield lines with aligned columns, within `width`; None: that of the terminal, and any for a pipe or a file.

    Columns are left out in the order of `left_out_first` until the others fit. Otherwise nothing is cut: what does not
    fit is wrapped in the last column, or below the other columns, or else between the cells. `styles` has the colours of
    cells, by the head of their column.
    """
    table = [[*heads], *([one_line(cell) for cell in row] for row in rows)]
    if width is None:
        width = terminal_width()
    for head in left_out_first:
        if width is None or _fits(_widths(table), width):
            break
        place = table[0].index(head)
        table = [[*row[:place], *row[place + 1 :]] for row in table]
    widths = _widths(table)
    painters = [styles.get(head, _plain) for head in table[0]]
    before_last = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    if width is None or before_last + widths[-1] <= width:
        yield from (_aligned(row, widths, painters) for row in table)
    elif before_last + max(_LEAST, _longest_word(row[-1] for row in table)) <= width:
        for row in table:
            first, *others = _wrapped(row[-1], width - before_last)
            yield _aligned([*row[:-1], first], widths, painters)
            yield from (" " * before_last + line for line in others)
    elif len(widths) > 1 and before_last - len(_GAP) <= width:
        for row in table:
            yield _aligned(row[:-1], widths[:-1], painters[:-1])
            yield from _below(row[-1], width)
    else:
        for row in table:
            yield from _filled(row, width)


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _fits(widths: Sequence[int], width: int) -> bool:
    """Return whether rows fit, the last column wrapped if it has to be."""
    return sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + min(widths[-1], _LEAST) <= width


def _longest_word(cells: Iterable[str]) -> int:
    return max((len(word) for cell in cells for word in cell.split()), default=0)


@contextmanager
def all_columns() -> Iterator[None]:
    """Within it, no column is left out, and no line is broken."""
    before = _HAS_ALL.set(True)
    try:
        yield
    finally:
        _HAS_ALL.reset(before)


def terminal_width() -> int | None:
    """Return how many characters a line of the terminal has; None: lines may have any number."""
    is_bounded = sys.stdout.isatty() and not _HAS_ALL.get()
    return shutil.get_terminal_size().columns if is_bounded else None


def _plain(_cell: str) -> str:
    return ""


def _aligned(row: Sequence[str], widths: Sequence[int], painters: Sequence[Callable[[str], str]]) -> str:
    text = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    starts = accumulate((width + len(_GAP) for width in widths), initial=0)
    return Line.of(
        text,
        [
            Span(start, start + len(cell.rstrip()), paint(cell))
            for start, cell, paint in zip(starts, row, painters, strict=False)  # one start more than cells
        ],
    )


def _below(cell: str, width: int) -> Iterator[str]:
    """Yield a cell on lines of its own, indented; none if it is empty."""
    if cell.strip():
        yield from (_INDENT + line for line in _wrapped(cell, width - len(_INDENT)))


def _filled(row: Sequence[str], width: int) -> Iterator[str]:
    """Yield a row on as many lines as it takes; cells are kept whole where they fit on a line."""
    line = ""
    for cell in filter(None, row):
        wider = f"{line}{_GAP}{cell}" if line.strip() else f"{line}{cell}"
        if len(wider) <= width or not line.strip():
            first, *others = _wrapped(wider, width)
        else:
            yield line
            first, *others = _wrapped(f"{_INDENT}{cell}", width)
        while others:
            yield first
            first, *others = _wrapped(f"{_INDENT}{' '.join(others)}", width)
        line = first
    yield line


def _wrapped(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(
        text,
        max(width, 1),
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=False,
        replace_whitespace=False,
    )
    if len(lines) > 1 and not lines[0].strip():  # behind an indent, a word that is longer than a line
        lines[:2] = [lines[0] + lines[1]]
    return [line.rstrip() if place == 0 else line.strip() for place, line in enumerate(lines)] or [""]
