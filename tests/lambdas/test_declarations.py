"""What a host's declaration does to the one in force, as a pure decision."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.lambdas.declarations import Standing, Verdict, decide
from duly_core.lambdas.policy import LambdaPolicy

MAIL = LambdaPolicy("mail.send", owner="mail team", version="1.9")


def of(version, **others):
    return replace(MAIL, version=version, **others)


@pytest.mark.parametrize(
    ("in_force", "superseded", "declared", "verdict"),
    [
        ("1.9", ["1.9"], "1.10", Verdict.CHANGED),
        ("1.10", ["1.10"], "1.9", Verdict.OLDER),
        ("1.9", ["1.9", "1.10"], "1.10", Verdict.OLDER),
        ("1.9", ["1.9", "1.10"], "1.11", Verdict.CHANGED),
        ("cafe", ["cafe"], "beef", Verdict.CHANGED),
        ("beef", ["cafe", "beef"], "cafe", Verdict.OLDER),
        ("v2", ["v2"], "3", Verdict.CHANGED),
        ("", [""], "1.0", Verdict.CHANGED),
        ("1.0", ["", "1.0"], "", Verdict.OLDER),
        ("2026.11.1", ["2026.11.1"], "2026.11.1-rc1", Verdict.CHANGED),
    ],
)
def test_a_version_that_is_newer_takes_the_place_of_the_one_in_force(in_force, superseded, declared, verdict):
    standing = Standing(of(in_force), 1, frozenset(superseded))

    assert decide(of(declared), standing) is verdict


def test_another_policy_under_the_version_in_force_takes_its_place():
    assert decide(of("1.9", max_attempts=3), Standing(of("1.9"), 1, {"1.9"})) is Verdict.CHANGED
    assert decide(of("1.9"), Standing(of("1.9"), 1, {"1.9"})) is Verdict.UNCHANGED


def test_a_lambda_belongs_to_the_owner_that_was_declared_first():
    owned, unowned = Standing(MAIL, 1, {"1.9"}), Standing(of("1.9", owner=""), 1, {"1.9"})

    assert decide(of("2.0", owner="web team"), owned) is Verdict.NOT_OWNER
    assert decide(of("1.9", owner=""), owned) is Verdict.NOT_OWNER
    assert decide(of("1.9", owner="web team"), unowned) is Verdict.CHANGED


def test_a_deleted_lambda_comes_back_with_a_new_version_or_of_another_owner():
    deleted = Standing(None, 3, {"1.8", "1.9", "cafe"}, deleted=MAIL)

    assert decide(of("1.9"), deleted) is Verdict.DELETED
    assert decide(of("1.8"), deleted) is Verdict.DELETED
    assert decide(of("cafe"), deleted) is Verdict.DELETED
    assert decide(of("1.10"), deleted) is Verdict.NEW
    assert decide(of("1.9", owner="web team"), deleted) is Verdict.NEW
    assert decide(of("1.9"), Standing()) is Verdict.NEW


VERSIONS = st.one_of(
    st.text("abc", max_size=2), st.lists(st.integers(0, 3), min_size=1).map(lambda n: ".".join(map(str, n)))
)


@given(st.lists(VERSIONS, max_size=12))
def test_hosts_that_restart_in_any_order_never_bring_back_a_version_that_was_replaced(starts):
    in_force, was_in_force = None, []
    for version in starts:
        standing = Standing(None if in_force is None else of(in_force), 1, frozenset(was_in_force))
        if in_force is None or decide(of(version), standing) is Verdict.CHANGED:
            in_force = version
            was_in_force.append(version)

    assert len(set(was_in_force)) == len(was_in_force)
