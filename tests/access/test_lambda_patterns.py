"""What a pattern covers: Python and Postgres say the same, and a prefix ends at the slash of a namespace."""

import re

import pytest

from duly_core.access.grants import Grant, Scope, pattern_problem
from duly_core.access.roles import Role
from duly_core.gates.rules import GateScope
from duly_core.lambdas import patterns as lambda_patterns

NAMES = (
    "a",
    "a.b",
    "a.b@1",
    "a.bc",
    "a.team/send",
    "a.team/send@a.1",
    "a/send",
    "ab/send",
    "b",
    "shop/a.b",
    "shop/b",
)
PATTERNS = (
    "*",
    "a",
    "a*",
    "a.*",
    "a.b",
    "a.b*",
    "a.t*",
    "a.team/*",
    "a/*",
    "s*",
    "shop/*",
    "shop/a.*",
    "shop/b",
)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("a.*", "a.team/send"), ("a*", "a/send"), ("a*", "ab/send"), ("a.t*", "a.team/send"), ("s*", "shop/b")],
)
def test_a_prefix_does_not_reach_into_a_namespace(pattern, name):
    assert not lambda_patterns.covers(pattern, name)
    assert not GateScope(pattern).covers(name)
    assert not Grant("ann", Role.OWNER, pattern).covers(name)
    assert not Scope((pattern,), ()).reaches(name, "ann")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_regular_expression_of_a_pattern_says_the_same(pattern):
    regex = re.compile(lambda_patterns.to_regex([pattern]))

    found = [name for name in NAMES if regex.search(name)]

    assert found == [name for name in NAMES if lambda_patterns.covers(pattern, name)]


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_postgres_reads_the_regular_expression_as_python_does(store, pattern):
    query = b"select name from unnest(%s::text[]) as name where name ~ %s"
    asked = [[*NAMES], lambda_patterns.to_regex([pattern, "b"])]

    async with store.connection() as connection:
        cursor = await connection.execute(query, asked)
        found = [row[0] for row in await cursor.fetchall()]

    covers = lambda_patterns.covers
    assert found == [name for name in NAMES if covers(pattern, name) or covers("b", name)]


@pytest.mark.parametrize("wide", PATTERNS)
def test_a_pattern_covers_another_only_if_it_covers_all_names_of_it(wide):
    for narrow in PATTERNS:
        if lambda_patterns.covers_all_of(wide, narrow):
            names = [name for name in NAMES if lambda_patterns.covers(narrow, name)]
            assert all(lambda_patterns.covers(wide, name) for name in names), narrow
    assert lambda_patterns.covers_all_of("*", wide)
    assert lambda_patterns.covers_all_of(wide, "*") is (wide == "*")


def test_a_scope_has_a_namespace_whose_every_lambda_it_covers():
    assert Scope(("shop/*",), ()).covers_namespace("shop")
    assert Scope(("*",), ()).covers_namespace("")
    assert not Scope(("s*", "shop/a.*"), ("shop/*",)).covers_namespace("shop")
    assert not Scope(("a*", "shop/*"), ()).covers_namespace("")


def test_no_namespace_may_be_called_as_the_one_of_lambdas_without_one():
    assert "fits no lambda" in pattern_problem("default/*")
    assert "no lambda's name" in pattern_problem("default/a")
