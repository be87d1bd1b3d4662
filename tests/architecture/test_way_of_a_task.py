"""The way of a task in the documents is the way that the imports go."""

import ast
import re
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-it-works.md"
TABLE = PAGE.read_text("utf-8").partition("## The modules of a plain task")[2].partition("## ")[0]
ROWS = [re.findall("`([a-z_.]+)`", line) for line in TABLE.splitlines() if "→" in line]
STEPS = [(first, second) for row in ROWS for first, second in pairwise(row)]


def imported(module: str) -> set[str]:
    spec = find_spec(module)
    assert spec, f"{PAGE.name} names {module}, which is not there"
    found = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def test_the_page_names_the_way():
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("first", "second"), STEPS, ids=lambda module: module)
def test_each_module_of_the_way_imports_the_next(first, second):
    assert find_spec(second)
    assert second in imported(first)
