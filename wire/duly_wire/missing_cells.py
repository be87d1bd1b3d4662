"""Which cells an answer lacks: the Frontend says so in trailing metadata."""

from collections.abc import Iterable

METADATA = "duly-cells-missing"
"""Their names, with commas between them. Absent: none is missing."""


def read(metadata: Iterable[tuple[str, str | bytes]] | None) -> tuple[str, ...]:
    """Return the names of the cells that an answer lacks, of its trailing metadata."""
    for key, value in metadata or ():
        if key == METADATA and isinstance(value, str):
            return tuple(value.split(","))
    return ()


def sentence(cells: Iterable[str]) -> str:
    """Return what people are told of an answer that lacks cells.

    >>> sentence(["b"]), sentence(["b", "c"])
    ('not shown: cell b, which does not answer', 'not shown: cells b and c, which do not answer')
    """
    names = sorted(cells)
    if len(names) == 1:
        return f"not shown: cell {names[0]}, which does not answer"
    return f"not shown: cells {', '.join(names[:-1])} and {names[-1]}, which do not answer"
