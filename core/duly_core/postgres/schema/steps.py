"""The numbered steps from the oldest schema that this release upgrades to its own. Each is a file in `steps/`.

A step's file begins with a sentence, and with what people plan by: `-- step:` its kind, `-- locks:` the locks that it takes on
tables that were there before, `-- reads:` the tables that it reads in whole. A test compares the last two with what Postgres does.
"""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path

from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.statements import CONSTANTS, resolve
from duly_core.postgres.task_fields import FRAGMENTS

FIRST = "0009"
"""The schema of the base release: the oldest that this release upgrades. `base.sql.gz` has it."""

_FOLDER = Path(__file__).parent / "steps"
_HEAD = re.compile(r"^-- (step|locks|reads): (.*)$", re.MULTILINE)
_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)")


class Kind(StrEnum):
    """When a step may run, and how it is cut off and continued."""

    EXPAND = "expand"
    """One transaction, before any process of the new release. The older release works on the result."""
    INDEX = "index"
    """Builds one index concurrently, before any process of the new release. What a cut left is removed and built anew."""
    BACKFILL = "backfill"
    """One statement that changes up to `batch` rows, repeated until it changes none. Each time is a transaction."""
    CONTRACT = "contract"
    """One transaction that takes away what older releases use: runs when none of their processes is alive."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock on a table that was there before the step."""

    table: str
    mode: str

    def __str__(self) -> str:
        return f"{self.table} {self.mode}"


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    version: str
    """The version of the schema after it."""
    name: str
    title: str
    kind: Kind
    locks: tuple[Lock, ...]
    reads: tuple[str, ...]
    """Tables that it reads in whole, while others read and write them."""
    text: str

    def sql(self, schema: str) -> str:
        """Return what Postgres gets. `schema` is the name, quoted where it needs quotes."""
        return resolve(self.text, CONSTANTS | FRAGMENTS | {"schema": schema})


def read_steps(folder: Path) -> tuple[Step, ...]:
    """Return the steps of a folder, in their order.

    Raises:
        ValueError: a file is none of a step.
    """
    return tuple(_read(path) for path in sorted(folder.glob("*.sql")))


def _read(path: Path) -> Step:
    named = _FILE.fullmatch(path.stem)
    text = path.read_text(encoding="utf-8")
    heads = dict(_HEAD.findall(text))
    if named is None or "step" not in heads or not text.startswith("-- "):
        raise ValueError(f"{path}: name it NNNN_words.sql, begin with a sentence, and say `-- step: KIND`")
    locks = (each.split(" ", 1) for each in _listed(heads.get("locks", "")))
    return Step(
        version=named[1],
        name=named[2],
        title=text.partition("\n")[0].removeprefix("-- "),
        kind=Kind(heads["step"]),
        locks=tuple(Lock(table, mode) for table, mode in locks),
        reads=tuple(_listed(heads.get("reads", ""))),
        text=text,
    )


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


STEPS = read_steps(_FOLDER)


def newest(steps: Sequence[Step]) -> str:
    """Return the version after all steps."""
    return steps[-1].version if steps else FIRST


def needed(steps: Sequence[Step]) -> str:
    """Return the version that this release's statements need: contract steps at the end may wait."""
    return newest([step for step in steps if step.kind is not Kind.CONTRACT])


NEWEST = newest(STEPS)
"""The version of the schema after all steps of this release."""
NEEDED = needed(STEPS)
"""The version of the schema that the statements of this release need."""


@cache
def _base() -> str:
    packed = files("duly_core.postgres.schema").joinpath("base.sql.gz").read_bytes()
    return gzip.decompress(packed).decode()


def sql_at(version: str, schema: str, steps: Sequence[Step] = STEPS) -> list[str]:
    """Return the texts that make the schema of a version, each for a transaction of its own.

    The rooms' files make the newest. An older one is the base with the steps up to it.
    """
    if version == newest(steps) and steps is STEPS:
        return [schema_sql(schema)]
    return [
        _base().replace("{{schema}}", schema),
        *(
            in_a_transaction(step, schema)
            for step in steps
            if step.version <= version and step.kind is not Kind.BACKFILL
        ),
    ]


def in_a_transaction(step: Step, schema: str) -> str:
    """Return a step for tables without rows that nobody else uses: there a transaction may build an index, too."""
    return step.sql(schema).replace(" concurrently", "")
