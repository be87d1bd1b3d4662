"""Rows by the names of their columns, so that a statement's columns and a shape's fields need no common order."""

from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeVar

from psycopg import AsyncCursor
from psycopg.rows import AsyncRowFactory, RowMaker

Shape = TypeVar("Shape", bound=tuple[Any, ...])


def named(shape: type[Shape]) -> AsyncRowFactory[Shape]:
    """Return a row factory for a named tuple: each field is the column of its name, other columns are left out."""

    def factory(cursor: AsyncCursor[Any]) -> RowMaker[Shape]:
        result = cursor.pgresult
        names = tuple(result.fname(place) for place in range(result.nfields)) if result else ()
        maker: RowMaker[Shape] = _maker(shape, names)
        return maker

    return factory


@lru_cache
def _maker(shape: Any, names: tuple[bytes | None, ...]) -> Any:
    """Return what makes a row; looked up once a statement, not once a row.

    Raises:
        ValueError: the statement has no column for a field.
    """
    place_of = {(name or b"").decode(): place for place, name in enumerate(names)}
    if missing := [field for field in shape._fields if field not in place_of]:
        raise ValueError(f"the statement has no column {', '.join(missing)} for {shape.__name__}")
    places = [place_of[field] for field in shape._fields]
    if places == list(range(len(names))):
        return shape._make
    pick = itemgetter(*places)
    return lambda row: shape._make(pick(row))
