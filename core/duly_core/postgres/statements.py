"""Loads the `.sql` files: statements with a name and a sentence.

`fragments.sql` of a room has what several statements share. In a statement `{{NAME}}` stands for the fragment NAME, and
`{{NAME: TEXT}}` for the fragment with TEXT in place of its `{{}}`. A name with a dot is a constant of `constants.sql`:
`{{kind.crash}}` is one of FailureKind, `{{policy.max_crashes}}` is that of the row of `lambda`, or LambdaPolicy's default.
`{{fields.columns}}` and the like follow from the table of a task's fields (`tasks/fields.toml`).
`make sql` writes all of it, resolved, to `core/sql/`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from duly_core.postgres.task_fields import FRAGMENTS

_HEAD = re.compile(r"^-- (?:name|fragment): ([\w.]+)\n", re.MULTILINE)
_USE = re.compile(r"\{\{([\w.]+)(?:: ([^{}]*))?\}\}")
_TEXT = "{{}}"
_NO_STATEMENTS = {"schema", "functions", "client_function", "constants", "fragments"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement."""

    name: str
    sql: str
    anew: bool = False
    """Its comment says "Planned anew", because a kept plan could be a bad one (decision 0021)."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A head and what follows it, up to the next."""

    name: str
    body: str

    @property
    def sql(self) -> str:
        return "\n".join(line for line in self.body.splitlines() if not line.startswith("--")).strip()


def _blocks(file_name: str) -> Iterator[_Block]:
    text = files("duly_core").joinpath(file_name).read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        yield _Block(head[1], text[head.end() : following.start() if following else len(text)])


def resolve(sql: str, fragments: dict[str, str]) -> str:
    """Put fragments in place of their names, those inside another's TEXT first.

    Raises:
        KeyError: there is no fragment of a name.
    """
    while (resolved := _USE.sub(lambda use: fragments[use[1]].replace(_TEXT, use[2] or ""), sql)) != sql:
        sql = resolved
    return sql


CONSTANTS = {block.name: block.sql for block in _blocks("postgres/constants.sql")}
"""Numbers with names; and a lambda's policy with its defaults, for tasks whose lambda is gone."""
_ROOMS = (
    "attachments",
    "watches",
    "events",
    "tasks",
    "sessions",
    "graphs",
    "limits",
    "gates",
    "fairness",
    "time_tables",
    "fleet",
    "explain",
    "pools",
)
_FRAGMENTS = (
    CONSTANTS
    | FRAGMENTS
    | {block.name: block.sql for room in _ROOMS for block in _blocks(f"{room}/fragments.sql")}
)


def statement_files() -> list[str]:
    """Return the files of all statements: those that `load` takes."""
    root = Path(str(files("duly_core")))
    found = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*.sql"))
    return [name for name in found if Path(name).stem not in _NO_STATEMENTS]


def fragment(name: str, text: str = "") -> str:
    """Return a fragment as statements have it, with `text` in its place."""
    return resolve(_FRAGMENTS[name].replace(_TEXT, text), _FRAGMENTS)


def load(file_name: str) -> dict[str, Statement]:
    """Read one file, such as `tasks/transitions.sql`, into its statements, by name."""
    return {
        block.name: Statement(block.name, _resolved(block, _FRAGMENTS), "-- Planned anew" in block.body)
        for block in _blocks(file_name)
    }


TWINS = ("gated", "fair", "gated_fair", "unwatched")
"""Kinds of statements that stand beside others."""
_ALONE = {"unwatched": {"finish", "finish_one"}}
"""Of a kind only these have a twin."""


def load_twins(file_name: str, kind: str) -> dict[str, Statement]:
    """Read the twins of the statements of a file, of one of TWINS, by the names of the others.

    `gated`: while gates hold some of their tasks. `fair`: of lambdas whose keys take turns. `gated_fair`: both. `unwatched`:
    while nobody watches.
    A fragment NAME_gated, and so on, stands in place of NAME. Statements that none of them changes have no twin.
    """
    fragments, simpler = _FRAGMENTS, [_FRAGMENTS]
    for suffix in [f"_{part}" for part in kind.split("_")] + [f"_{kind}"]:
        own = {name.removesuffix(suffix): text for name, text in _FRAGMENTS.items() if name.endswith(suffix)}
        if suffix != f"_{kind}":
            simpler.append(_FRAGMENTS | own)
        fragments = fragments | own
    twins = {}
    for block in _blocks(file_name):
        sql = _resolved(block, fragments)
        if block.name in _ALONE.get(kind, {block.name}) and all(
            sql != _resolved(block, others) for others in simpler
        ):
            twins[block.name] = Statement(f"{block.name}_{kind}", sql, "-- Planned anew" in block.body)
    return twins


def _resolved(block: _Block, fragments: dict[str, str]) -> str:
    return resolve(block.sql, fragments).strip()


TRANSITIONS = load("tasks/transitions.sql")
GATED = load_twins("tasks/transitions.sql", "gated")
"""Beside TRANSITIONS: `claim_work` and `enqueue` leave out what gates hold, and `heartbeat` says what it is judged by."""
UNWATCHED = load_twins("tasks/transitions.sql", "unwatched")
"""Beside TRANSITIONS: `finish` and `finish_one` do not look whether somebody watches (decision 0092)."""
FAIR = load_twins("tasks/transitions.sql", "fair")
"""Beside TRANSITIONS: `claim_work` and `enqueue` take tasks in turn by their fair keys."""
GATED_FAIR = load_twins("tasks/transitions.sql", "gated_fair")
"""Both at once."""
READS = load("tasks/reads.sql")
LOCKS = load("tasks/locks.sql")
ENTITIES = load("tasks/entities.sql")
