"""The enums of the SDK, as people see them: in logs, in f-strings, in what a task prints."""

import json
from enum import IntEnum

import pytest

import duly

ENUMS = [
    kind
    for kind in (getattr(duly, name) for name in duly.__all__)
    if isinstance(kind, type) and issubclass(kind, IntEnum)
]


@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_a_member_prints_as_its_name_and_is_still_its_number(kind: type[IntEnum]) -> None:
    for member in kind:
        assert (str(member), f"{member}", f"{member!r}") == (
            member.name,
            member.name,
            f"<{kind.__name__}.{member.name}: {member.value}>",
        )
        assert (
            f"{member:>20}|{member:d}|{member:02d}" == f"{member.name:>20}|{member.value}|{member.value:02d}"
        )
        assert {member.value: True}[member]
        assert json.dumps([member]) == f"[{member.value}]"
