"""Constants that statements name are what Python says."""

from dataclasses import fields
from datetime import timedelta

from duly_core.attachments.rules import Role
from duly_core.fleet.hosts import MISSED_REPORTS
from duly_core.graphs import rules
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.store import MOST_LABEL_QUEUES
from duly_core.limits.store import LARGEST_RATE, UNLIMITED
from duly_core.postgres.statements import CONSTANTS
from duly_core.tasks.task import Encoding
from duly_core.watches import rules as watched
from duly_wire.enums import FailureKind, SessionOrder, SessionPolicy

OF_SQL_ALONE = {"batch", "events", "turns"}
"""Prefixes of constants that Python has no use for."""
OF_PYTHON_ALONE = {"batch_size", "batch_wait"}
"""Fields of a policy that no statement reads."""


def test_each_constant_is_the_number_that_python_has():
    numbers = {
        f"{prefix}.{each.name.lower()}": str(int(each))
        for prefix, kinds in {
            "kind": FailureKind,
            "encoding": Encoding,
            "session_policy": SessionPolicy,
            "role": Role,
        }.items()
        for each in kinds
    }
    numbers |= {
        "session_order.due": str(int(SessionOrder.DUE)),
        "edge.succeeded": str(rules.SUCCEEDED),
        "edge.failed": str(rules.FAILED),
        "edge.cancelled": str(rules.CANCELLED),
        "edge.timed_out": str(rules.TIMED_OUT),
        "edge.skipped": str(rules.SKIPPED),
        "hosts.missed_reports": str(MISSED_REPORTS),
        "lambdas.most_label_queues": str(MOST_LABEL_QUEUES),
        "units.unlimited": str(UNLIMITED),
        "rate.most": str(LARGEST_RATE),
        "watched.run": str(watched.RUN_ENDED),
        "watched.task": str(watched.TASK_ENDED),
        "watched.graph": str(watched.GRAPH_FINISHED),
    }

    assert {
        name: text
        for name, text in CONSTANTS.items()
        if name.partition(".")[0] not in OF_SQL_ALONE | {"policy"}
    } == numbers


def test_the_defaults_of_a_policy_in_sql_are_those_of_python():
    defaults = {
        f"policy.{each.name}": f"coalesce(lambda.{each.name}, {literal(each.default)})"
        for each in fields(LambdaPolicy)
        if each.name not in OF_PYTHON_ALONE and isinstance(each.default, int | float | timedelta)
    }
    assert {name: text for name, text in CONSTANTS.items() if name.startswith("policy.")} == defaults


def literal(value: float | timedelta) -> str:
    if isinstance(value, timedelta):
        return f"interval '{value.days} days {value.total_seconds() % 86_400:g} seconds'"
    return f"{value:g}"
