"""A command lambda with small limits."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from duly.command_lambdas.definition import CommandLambda
from duly.lambdas.policy import Policy

_SMALL = CommandLambda(
    name="chores/run",
    programs={},
    shell="",
    environment={},
    settable=frozenset(),
    max_runtime=timedelta(seconds=20),
    stop_grace=timedelta(seconds=5),
    memory_limit=256 << 20,
    process_limit=20,
    output_limit=1 << 20,
    folder_limit=8 << 20,
    exit_codes={},
    policy=Policy(),
)


def command_lambda(**options: Any) -> CommandLambda:
    return replace(_SMALL, **options)
