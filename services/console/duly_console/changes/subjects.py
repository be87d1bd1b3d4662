"""Which pages can follow changes, and whose. No I/O."""

import re
from typing import NamedTuple
from uuid import UUID

from duly_console.viewer import Viewer

PATH = "/changes"
_OF_ONE = re.compile(r"/(tasks|graphs)/([0-9a-f-]{36})")
_OF_ALL = frozenset({"/", "/tasks", "/graphs", "/dead-letters", "/lambdas", "/queues", "/hosts"})


class Subject(NamedTuple):
    """What a page shows."""

    kind: str
    """`tasks` or `graphs`: one of them; `all`: what happens at all."""
    id: str = ""


def subject_of(path: str) -> Subject | None:
    """Return what a page shows; None: nothing that can be followed."""
    if path in _OF_ALL:
        return Subject("all")
    found = _OF_ONE.fullmatch(path)
    if found is None:
        return None
    try:
        return Subject(found[1], str(UUID(found[2])))
    except ValueError:
        return None


def may_follow(subject: Subject | None, viewer: Viewer) -> bool:
    """Whether a person may: how much happens at all is for those only who may read everything."""
    return subject is not None and (subject.kind != "all" or viewer.may_everywhere("READ"))
