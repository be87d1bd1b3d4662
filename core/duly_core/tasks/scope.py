"""The tasks that a caller may reach, as SQL and as a look at single tasks."""

from collections.abc import Collection
from typing import Any, NamedTuple
from uuid import UUID

from duly_core.access.grants import Scope
from duly_core.lambdas.patterns import EVERYTHING, to_regex
from duly_core.postgres.pool import Store
from duly_core.tasks.store import select_text
from duly_wire.ids import TaskId


class Origin(NamedTuple):
    """What decides who may reach a task. It never changes."""

    lambda_name: str
    scheduled_by: str | None


async def task_origins(store: Store, task_ids: Collection[TaskId]) -> dict[TaskId, Origin]:
    """Return the origins of tasks by id; unknown tasks are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not task_ids:
        return {}
    rows = await select_text(
        store,
        "select task_id, lambda, scheduled_by from task where task_id = any(%(task_ids)s::uuid[])",
        {"task_ids": [UUID(bytes=task_id) for task_id in set(task_ids)]},
    )
    return {row["task_id"].bytes: Origin(row["lambda"], row["scheduled_by"]) for row in rows}


def scope_condition(scope: Scope, name: str, lambda_column: str, scheduled_by: str) -> str:
    """Return a condition that holds for what the caller may reach.

    Args:
        scope: what that is.
        name: the lambda that all rows have; empty: rows of any lambda are looked at.
        lambda_column: the column with a row's lambda.
        scheduled_by: the column with the principal that scheduled it.
    """
    own = f"{scheduled_by} = %(scope_principal)s"
    if name:
        return "true" if scope.covers_all_of(name) else own if scope.covers(name) else "false"
    found = []
    if scope.all_tasks:
        found.append(f"{lambda_column} ~ %(scope_all)s")
    if EVERYTHING in scope.own_tasks:
        found.append(own)
    elif scope.own_tasks:
        found.append(f"{own} and {lambda_column} ~ %(scope_own)s")
    return f"({' or '.join(found)})" if found else "false"


def graph_condition(scope: Scope) -> str:
    """Return a condition on `graph` that holds for those that the caller scheduled, and those all of whose nodes it may reach."""
    found = []
    if scope.own_tasks:
        found.append("graph.scheduled_by = %(scope_principal)s")
    if scope.all_tasks:
        found.append("""not exists (
            select from graph_node as node
            where node.graph_id = graph.graph_id and node.lambda !~ %(scope_all)s
        )""")
    return f"({' or '.join(found)})" if found else "false"


def scope_parameters(scope: Scope | None) -> dict[str, Any]:
    """Return the parameters of `scope_condition`."""
    if scope is None:
        return {}
    return {
        "scope_principal": scope.principal,
        "scope_all": to_regex(scope.all_tasks),
        "scope_own": to_regex(scope.own_tasks),
    }
