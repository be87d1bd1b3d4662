"""Which schema a store has, in a word: the digest that `duly migrate` leaves there, and services compare when they start.

It is the comment of the table `alembic_version`: everybody may read it, a dump has it, and no table is emptied with it.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple, Self

from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.schema.steps import FIRST, STEPS, Kind, Step

_COMMENT = re.compile(r"--[^\n]*")
_STAMP = re.compile(r"made by ([0-9a-f]{16}), is ([0-9a-f]{16})(?:, for releases that know ([0-9]{4}))?")


class Stamp(NamedTuple):
    """What `duly migrate` leaves in the store."""

    source: str
    """The digest of the text that made the schema."""
    catalogue: str
    """The digest of what Postgres said of it, right after."""
    contracted: str = FIRST
    """The last contract step that ran: a release that does not know it finds that its statements fail."""

    @classmethod
    def read(cls, comment: str | None) -> Self | None:
        """Return the stamp; None: there is none."""
        found = _STAMP.search(comment or "")
        return None if found is None else cls(found[1], found[2], found[3] or FIRST)

    def __str__(self) -> str:
        # the base release reads the first two
        return f"made by {self.source}, is {self.catalogue}, for releases that know {self.contracted}"


def plain(sql: str) -> str:
    """Return SQL without comments, and with single spaces: what differs in these is no other schema.

    >>> plain("select 1 -- one" + chr(10) + "  from a")
    'select 1 from a'
    """
    return " ".join(_COMMENT.sub("", sql).split())


def digest(parts: Iterable[str]) -> str:
    """Return a digest of texts, in their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def contracted(version: str, steps: Sequence[Step] = STEPS) -> str:
    """Return the last contract step of a schema of this version."""
    done = [step.version for step in steps if step.kind is Kind.CONTRACT and step.version <= version]
    return done[-1] if done else FIRST


@cache
def source_digest(steps: Sequence[Step] = STEPS) -> str:
    """Return the digest of what makes this release's schema."""
    return digest((plain(schema_sql("SCHEMA")), *(plain(step.text) for step in steps)))
