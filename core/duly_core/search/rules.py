"""Read the text of a search: which parts of ids it may be, and which attribute. No I/O."""

import re
from dataclasses import dataclass
from uuid import UUID

LONGEST = 300
"""Bytes of a text."""
_ID_DIGITS = 32
_FEWEST_DIGITS = 4
"""Fewer are in nearly every id."""
_FEWEST_OF_NAMES = 2
"""Characters of a part of a name."""
_GAP = re.compile(r"…|\.{2,3}|\*")
"""Between the begin and the end of an id, as pages shorten it."""
_DIGITS = re.compile(r"[0-9a-f-]+")
_ATTRIBUTE = re.compile(r"([a-z][a-z0-9_.-]{0,63})\s*=\s*(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IdPart:
    """Hexadecimal digits with which an id begins and ends; at least one of the two has some."""

    begin: str = ""
    end: str = ""

    @property
    def lowest(self) -> UUID:
        """The first id that begins so."""
        return UUID(hex=self.begin.ljust(_ID_DIGITS, "0"))

    @property
    def highest(self) -> UUID:
        """The last id that begins so."""
        return UUID(hex=self.begin.ljust(_ID_DIGITS, "f"))

    @property
    def is_whole(self) -> bool:
        """Whether one id alone begins so."""
        return len(self.begin) == _ID_DIGITS


@dataclass(frozen=True, slots=True)
class Sought:
    """What a text may mean."""

    text: str
    ids: tuple[IdPart, ...] = ()
    """Each alternative."""
    attribute: tuple[str, str] | None = None
    """A name and a value."""

    @property
    def is_name(self) -> bool:
        """Whether it is long enough for a part of a name."""
        return len(self.text) >= _FEWEST_OF_NAMES


def read(text: str) -> Sought:
    """Return what a text may mean.

    >>> [(part.begin, part.end) for part in read("0192D3E4…cdef").ids], read("order=17").attribute
    ([('0192d3e4', 'cdef')], ('order', '17'))
    """
    text = text.strip()
    found = _ATTRIBUTE.fullmatch(text)
    return Sought(text, tuple(_ids(text.lower())), (found[1], found[2].strip()) if found else None)


def _ids(text: str) -> list[IdPart]:
    begin, *rest = _GAP.split(text)
    if len(rest) > 1:
        return []
    first, last = _digits(begin), _digits(rest[0]) if rest else ""
    if first is None or last is None or len(first) + len(last) < _FEWEST_DIGITS:
        return []
    if rest:
        return [IdPart(first, last)] if len(first) + len(last) <= _ID_DIGITS else []
    if len(first) == _ID_DIGITS:
        return [IdPart(first)]
    return [IdPart(begin=first), IdPart(end=first)] if len(first) < _ID_DIGITS else []


def _digits(text: str) -> str | None:
    """Return the digits of a part of an id; None: it is no part of one."""
    if not text:
        return ""
    return text.replace("-", "") if _DIGITS.fullmatch(text) else None
