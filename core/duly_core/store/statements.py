"""Loads the `.sql` files: statements with a name, a sentence, and (transitions) the move they make.

A fragment (`-- fragment: NAME`) is text that several statements of its file share: `{{NAME}}` stands for it.
"""

import re
from dataclasses import dataclass
from importlib.resources import files

from duly_core.lifecycle import Status

_HEAD = re.compile(r"^-- (name|fragment): (\w+)\n(?:-- move: (.*)\n)?", re.MULTILINE)
_USE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement; `before` and `after` are empty for those that change nothing.

    `anew`: its comment says "Planned anew", because a kept plan could be a bad one (decision 0021).
    """

    name: str
    sql: str
    before: frozenset[Status] = frozenset()
    after: frozenset[Status] = frozenset()
    anew: bool = False


def _statuses(text: str) -> frozenset[Status]:
    return frozenset(Status(part) for part in text.strip().split("|") if part)


def load(file_name: str) -> dict[str, Statement]:
    """Read one file beside this module into its statements, by name; a fragment stands before its first use."""
    text = files("duly_core.store").joinpath(file_name).read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    fragments: dict[str, str] = {}
    statements = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = text[head.end() : following.start() if following else len(text)]
        sql = "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
        sql = _USE.sub(lambda use: fragments[use[1]], sql)
        kind, name, move = head.groups()
        if kind == "fragment":
            fragments[name] = sql
            continue
        before, _, after = (move or "").partition("->")
        anew = "-- Planned anew" in body
        statements[name] = Statement(name, sql, _statuses(before), _statuses(after), anew)
    return statements


TRANSITIONS = load("transitions.sql")
READS = load("reads.sql")
