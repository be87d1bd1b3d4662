"""SQL lies in `.sql` files, which a Postgres engineer reads; Python composes it for what people filter."""

import ast
import re
from pathlib import Path

import pytest

import duly_core

CORE = Path(duly_core.__file__).parent
COMPOSED = {
    "fleet/host_reads.py": "a list that people filter",
    "graphs/reads.py": "a list that people filter",
    "tasks/attributes.py": "a list that people filter",
    "search/store.py": "each read is restricted to what its caller may see",
    "lambdas/administration.py": "its columns are the fields of LambdaPolicy",
    "lambdas/store.py": "its columns are the fields of LambdaPolicy",
    "postgres/rights.py": "reads the catalogue, for rights",
    "postgres/service_roles.py": "reads the catalogue, for rights",
    "upkeep/fences.py": "runs once, after a restore",
    "access/operator_without_server.py": "runs once, for a new store",
    "access/store.py": "a statement of one call",
}
"""Why SQL of several lines stands in these modules."""

STATEMENT = re.compile(r"\s*(with|select|insert into|update|delete from)\s.*\n.*\S", re.DOTALL)


def sql_in(module: Path) -> list[str]:
    strings = (
        node.value.decode("utf-8", "replace") if isinstance(node.value, bytes) else node.value
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
    return [each for each in strings if STATEMENT.match(each)]


def test_the_pattern_finds_statements_of_several_lines_alone() -> None:
    assert STATEMENT.match("\nselect name\nfrom lambda\n")
    assert not STATEMENT.match("select name from lambda")
    assert not STATEMENT.match("With a first line in plain words.\n\nAnd more.")


@pytest.mark.parametrize(
    "module", sorted(CORE.rglob("*.py")), ids=lambda path: path.relative_to(CORE).as_posix()
)
def test_sql_of_several_lines_lies_in_a_file_of_its_own(module: Path) -> None:
    found = sql_in(module)

    if module.relative_to(CORE).as_posix() in COMPOSED:
        assert found, "take it out of COMPOSED"
    else:
        assert found == []
