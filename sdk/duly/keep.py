"""What is not to be changed: KEEP. None removes a value, so it cannot mean that the value stays."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Keep(Enum):
    """The type of KEEP."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""The value stays as it is; of something new it is the default."""


def said(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that a call sets or removes, with their names."""
    return ((name, value) for name, value in values.items() if value is not KEEP)
