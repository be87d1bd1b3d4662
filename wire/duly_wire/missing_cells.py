"""Which cells an answer lacks, and which a change reaches later: the Frontend says so in trailing metadata."""

from collections.abc import Iterable

METADATA = "duly-cells-missing"
"""The names of cells that an answer lacks, with commas between them. Absent: none is missing."""
LATER = "duly-cells-later"
"""The names of cells that get a change when they answer again."""


def read(metadata: Iterable[tuple[str, str | bytes]] | None, key: str = METADATA) -> tuple[str, ...]:
    """Return the names of the cells that an answer lacks, of its trailing metadata; with LATER those that get the change later."""
    for name, value in metadata or ():
        if name == key and isinstance(value, str):
            return tuple(value.split(","))
    return ()


def sentence(cells: Iterable[str], key: str = METADATA) -> str:
    """Return what people are told of an answer that lacks cells, or of a change that reaches them later.

    >>> sentence(["b"]), sentence(["b", "c"])
    ('not shown: cell b, which does not answer', 'not shown: cells b and c, which do not answer')
    >>> sentence(["b"], LATER)
    'not written yet: cell b, which does not answer, and gets it when it is back'
    """
    names = sorted(cells)
    is_one = len(names) == 1
    which = (
        f"cell {names[0]}, which does"
        if is_one
        else f"cells {', '.join(names[:-1])} and {names[-1]}, which do"
    )
    if key == LATER:
        return f"not written yet: {which} not answer, and {'gets it when it is' if is_one else 'get it when they are'} back"
    return f"not shown: {which} not answer"
