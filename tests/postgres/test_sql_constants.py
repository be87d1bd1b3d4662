"""Constants that statements name are what Python says."""

from dataclasses import fields
from datetime import timedelta

from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.statements import CONSTANTS
from duly_core.tasks.task import Encoding
from duly_wire.enums import FailureKind


def test_each_kind_of_failure_and_each_encoding_is_a_constant_of_its_number():
    numbers = {f"kind.{each.name.lower()}": str(int(each)) for each in FailureKind}
    numbers |= {f"encoding.{each.name.lower()}": str(int(each)) for each in Encoding}
    assert {name: text for name, text in CONSTANTS.items() if not name.startswith("policy.")} == numbers


def test_the_defaults_of_a_policy_in_sql_are_those_of_python():
    defaults = {
        f"policy.{each.name}": f"coalesce(lambda.{each.name}, {literal(each.default)})"
        for each in fields(LambdaPolicy)
        if isinstance(each.default, int | float | timedelta)
    }
    assert {name: text for name, text in CONSTANTS.items() if name.startswith("policy.")} == defaults


def literal(value: float | timedelta) -> str:
    if isinstance(value, timedelta):
        return f"interval '{value.days} days {value.total_seconds() % 86_400:g} seconds'"
    return f"{value:g}"
