"""Reads what a host declares: the policy of a lambda, and its time tables."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from duly_core.events.wait_nodes import WAIT_LAMBDA, is_wait_lambda
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.rpc.requests.checks import read_duration
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import resource_needs
from duly_core.tasks.schedule import written_needs
from duly_core.tasks.task import HARD_PAYLOAD_LIMIT
from duly_core.time_tables.time_table import TimeTable
from duly_core.traffic.slices import Steps
from duly_frontend.time_tables.definitions import time_table
from duly_wire.queue_names import MOST_REQUIRED, check_labels
from duly_wire.v1 import registry_pb2

_MOST_TABLES = 1000
_TEXT_LIMIT = 256
_LONGEST = timedelta(days=365)
_MOST_IN_BATCH = 1_000
_LONGEST_BATCH_WAIT = timedelta(minutes=1)


def check_text_of(field: str, text: str) -> None:
    """Check an owner or a version.

    Raises:
        Problem: it is too long, or has a NUL.
    """
    _check(
        field,
        f"must be at most {_TEXT_LIMIT} characters without NUL",
        holds=len(text) <= _TEXT_LIMIT and "\x00" not in text,
    )


def reading_tables(declared: registry_pb2.Lambda) -> Steps[list[TimeTable]]:
    """The time tables that an application declares for a lambda, read in steps. The first problem ends it.

    Whether the resources that they name are declared is not looked at: one that is missing must not stop the lambda.

    Raises:
        Problem: names the time table, the field and the fix.
    """
    if len(declared.time_tables) > _MOST_TABLES:
        raise Problem("time_tables", f"there must be at most {_MOST_TABLES} for one lambda")
    tables = []
    for asked in declared.time_tables:
        setattr(asked, "lambda", declared.name)
        try:
            table = time_table(asked, None)
        except Problem as problem:
            where = f"time_tables[{asked.name[:128]!r}].{problem.field}"
            raise Problem(where, problem.message, problem.code) from problem
        limit = (
            declared.payload_limit if declared.HasField("payload_limit") else LambdaPolicy("").payload_limit
        )
        if len(table.payload) > limit:
            raise Problem(
                f"time_tables[{table.name!r}].payload",
                f"is larger than the {limit:,} bytes that the lambda takes",
            )
        tables.append(table)
        yield
    return tables


def policy_from_wire(declared: registry_pb2.Lambda) -> LambdaPolicy:
    """A lambda's policy with the defaults filled in.

    Raises:
        Problem: names the field and the fix.
    """
    check_lambda_name("name", declared.name)
    _check(
        "name",
        f"{WAIT_LAMBDA} is Duly's own, for nodes that wait for events: give the lambda another name",
        holds=not is_wait_lambda(declared.name),
    )
    check_text_of("owner", declared.owner)
    check_text_of("version", declared.version)
    policy = LambdaPolicy(declared.name, owner=declared.owner, version=declared.version)
    for name, lowest, highest in (
        ("max_attempts", 1, 1_000_000),
        ("max_crashes", 1, 1_000),
        ("payload_limit", 0, HARD_PAYLOAD_LIMIT),
    ):
        if declared.HasField(name):  # type: ignore[arg-type]
            value: int = getattr(declared, name)
            _check(name, f"must be from {lowest:,} to {highest:,}", holds=lowest <= value <= highest)
            policy = replace(policy, **{name: value})  # type: ignore[arg-type]  # the names stand above
    for name in ("max_runtime", "crash_window"):
        if declared.HasField(name):  # type: ignore[arg-type]
            duration = read_duration(name, getattr(declared, name), _LONGEST, least=timedelta.resolution)
            policy = replace(policy, **{name: duration})  # type: ignore[arg-type]
    if declared.HasField("backoff"):
        policy = _with_backoff(policy, declared.backoff)
    if declared.resources:
        needs = resource_needs(declared.resources, None, declared.name)
        policy = replace(policy, needs=written_needs(needs))
    if declared.requires:
        policy = replace(policy, requires=_required(declared.requires))
    if declared.HasField("batch"):
        policy = _with_batch(policy, declared.batch)
    return policy


def _with_batch(policy: LambdaPolicy, declared: registry_pb2.Batch) -> LambdaPolicy:
    _check("batch.size", f"must be from 1 to {_MOST_IN_BATCH:,}", holds=1 <= declared.size <= _MOST_IN_BATCH)
    wait = read_duration("batch.wait", declared.wait, _LONGEST_BATCH_WAIT)
    return replace(policy, batch_size=declared.size, batch_wait=wait)


def _required(labels: Sequence[str]) -> str:
    try:
        return check_labels(labels, MOST_REQUIRED)
    except ValueError as error:
        raise Problem("requires", str(error)) from None


def _with_backoff(policy: LambdaPolicy, declared: registry_pb2.Backoff) -> LambdaPolicy:
    if declared.HasField("initial"):
        initial = read_duration("backoff.initial", declared.initial, _LONGEST)
        policy = replace(policy, backoff_initial=initial, backoff_max=max(initial, policy.backoff_max))
    if declared.HasField("factor"):
        _check("backoff.factor", "must be from 1 to 1000", holds=1 <= declared.factor <= 1000)
        policy = replace(policy, backoff_factor=declared.factor)
    if declared.HasField("max"):
        policy = replace(policy, backoff_max=read_duration("backoff.max", declared.max, _LONGEST))
    _check(
        "backoff.max",
        "must not be below backoff.initial",
        holds=policy.backoff_max >= policy.backoff_initial,
    )
    return policy


def _check(field: str, message: str, *, holds: bool) -> None:
    if not holds:
        raise Problem(field, message)
