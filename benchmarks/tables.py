"""Markdown tables, and figures as they are written in them."""

import statistics
from collections.abc import Iterable, Sequence


def rows(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    body = list(body)
    if not body:
        return ""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median, and lowest to highest."""
    median = f"{statistics.median(values):,.{digits}f}"
    if len(values) == 1:
        return median
    return f"{median} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
