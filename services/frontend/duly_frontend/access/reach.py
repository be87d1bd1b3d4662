"""Holds what a call names against what its caller may reach. What lies beyond is answered as what does not exist."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from duly_core.access.current import current_access, denied, require, restriction
from duly_core.access.grants import Scope
from duly_core.access.item_refusals import note_item_refusal
from duly_core.access.roles import Action
from duly_core.lambdas.names import NAMESPACE_MARK
from duly_core.lambdas.patterns import pattern_of_namespace
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.scope import task_origins
from duly_frontend.tasks.wire import NO_SUCH_TASK
from duly_wire.ids import TaskId
from duly_wire.v1 import task_pb2

_LONGEST_NAME = 128


async def reachable(
    store: Store, action: Action, ids: Sequence[TaskId | Problem]
) -> Sequence[TaskId | Problem]:
    """Return the ids with NO_SUCH_TASK in place of those that the caller may not reach.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    scope = restriction(action)
    if scope is None:
        return ids
    wanted = {task_id for task_id in ids if not isinstance(task_id, Problem)}
    origins = await task_origins(store, wanted)
    within = {task_id for task_id, origin in origins.items() if scope.reaches(*origin)}
    return [each if isinstance(each, Problem) or each in within else NO_SUCH_TASK for each in ids]


@dataclass(frozen=True, slots=True)
class Readable:
    """What a caller that reads tasks gets."""

    ids: Sequence[TaskId | Problem]
    """With NO_SUCH_TASK in place of those that it may not read."""
    withheld: frozenset[TaskId] = frozenset()
    """Of which it may not see payloads, results and what callbacks said."""


async def readable(store: Store, ids: Sequence[TaskId | Problem]) -> Readable:
    """Return what the caller may read of these tasks.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    scope, payloads = restriction(Action.READ), restriction(Action.READ_PAYLOAD)
    wanted = {task_id for task_id in ids if not isinstance(task_id, Problem)}
    if scope is None and (payloads is None or payloads.is_empty):
        return Readable(ids, frozenset() if payloads is None else frozenset(wanted))
    origins = await task_origins(store, wanted)
    within = {task_id for task_id, origin in origins.items() if scope is None or scope.reaches(*origin)}
    withheld = {
        task_id for task_id in within if payloads is not None and not payloads.reaches(*origins[task_id])
    }
    return Readable(
        [each if isinstance(each, Problem) or each in within else NO_SUCH_TASK for each in ids],
        frozenset(withheld),
    )


def check_lambda(scope: Scope | None, action: Action, name: str, field: str = "lambda") -> None:
    """Check that the caller may do this with a lambda, whether it exists or not.

    Raises:
        Problem: it may not.
    """
    if scope is not None and not scope.covers(name):
        raise refused(action, name, field)


def check_event_key(scope: Scope | None, namespace: str, key: str) -> None:
    """Check that the caller may send events to this key.

    Raises:
        Problem: it may not.
    """
    if scope is not None and not scope.covers_event_key(namespace, key):
        # no pattern but that of the whole namespace covers a key with a slash
        needed = f"{namespace}{NAMESPACE_MARK}{key}" if namespace else key
        raise refused(
            Action.SEND, pattern_of_namespace(namespace) if NAMESPACE_MARK in key else needed, "key"
        )


def beyond(action: Action, names: Collection[str]) -> Collection[str]:
    """Return those of these lambdas with which the caller may not do this, whether they exist or not."""
    scope = restriction(action)
    return () if scope is None else {name for name in names if not scope.covers(name)}


def refused(action: Action, name: str, field: str = "lambda") -> Problem:
    """Return the refusal of one item, which the audit log will have."""
    note_item_refusal(action, name[:_LONGEST_NAME])
    error = denied(current_access(), action, name[:_LONGEST_NAME])
    return Problem(field, str(error), task_pb2.ERROR_CODE_PERMISSION_DENIED)


def scope_of(action: Action, lambda_name: str) -> Scope | None:
    """Return what a list or a bulk change may reach; None: everything.

    Raises:
        PermissionDeniedError: it is of one lambda, and of that the caller may reach nothing.
    """
    if lambda_name:
        require(action, lambda_name)
    return restriction(action)
