"""Which schema a store has, in a word: the digest that `duly migrate` leaves there, and services compare when they start.

It is the comment of the table `alembic_version`: everybody may read it, a dump has it, and no table is emptied with it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

from duly_core.postgres.schema.definition import schema_sql

FIRST = "0009"
"""The first migration that was released. Those before it are gone, and so is the way on from their schemas."""

VERSIONS = Path(__file__).parent / "migrations" / "versions"

NEWEST = max(path.stem for path in VERSIONS.glob("[0-9]*.py")).split("_")[0]
"""The version of the schema that this release needs."""

_COMMENT = re.compile(r"--[^\n]*")
_STAMP = re.compile(r"made by ([0-9a-f]{16}), is ([0-9a-f]{16})")


class Stamp(NamedTuple):
    """What `duly migrate` leaves in the store."""

    source: str
    """The digest of the text that made the schema."""
    catalogue: str
    """The digest of what Postgres said of it, right after."""

    @classmethod
    def read(cls, comment: str | None) -> Self | None:
        """Return the stamp; None: there is none."""
        found = _STAMP.search(comment or "")
        return None if found is None else cls(*found.groups())

    def __str__(self) -> str:
        return f"made by {self.source}, is {self.catalogue}"


def plain(sql: str) -> str:
    """Return SQL without comments, and with single spaces: what differs in these is no other schema.

    >>> plain("select 1 -- one" + chr(10) + "  from a")
    'select 1 from a'
    """
    return " ".join(_COMMENT.sub("", sql).split())


def digest(parts: Iterable[str]) -> str:
    """Return a digest of texts, in their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def source_digest() -> str:
    """Return the digest of what makes this release's schema."""
    return digest((plain(schema_sql("SCHEMA")), *_later_migrations()))


def _later_migrations() -> Iterator[str]:
    for path in sorted(VERSIONS.glob("[0-9]*.py")):
        if not path.stem.startswith(FIRST):
            yield path.read_text(encoding="utf-8")
