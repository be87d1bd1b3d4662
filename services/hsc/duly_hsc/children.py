"""Checks the tasks that callbacks scheduled, as the Frontend would: they are written with the result, or it is fatal."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from duly_core.access.current import restriction, scheduler
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError
from duly_core.graphs.growth_rules import NewNode, check_request
from duly_core.graphs.rules import GraphError, Node
from duly_core.lambdas.cache import LambdaCache
from duly_core.postgres.pool import Store
from duly_core.results.successes import refused
from duly_core.rpc.requests.new_nodes import check_order, edges_of, max_runtime, node_field
from duly_core.rpc.requests.new_tasks import ProblemUnlessRepeatedError, is_of_the_future, new_task
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache, needs_of, read_needs
from duly_core.tasks.scope import Origin, task_origins
from duly_core.tasks.task import NewTask, Result
from duly_hsc.access import Parent, parent_of
from duly_hsc.cells.own_cell import SOLE, OwnCell
from duly_wire.enums import OnConflict, Outcome
from duly_wire.ids import TaskId
from duly_wire.queue_names import LABELS_MARK
from duly_wire.v1 import frontend_pb2, graphs_pb2, hsc_pb2

_MOST_CHILDREN = 1_000
_MOST_BYTES = 4 * 1024 * 1024
_MOST_USE_BYTES = 512 * 1024
"""Of the attachments of all that a result adds: 1,000 with long names."""
_HORIZON = timedelta(days=365)


class _Known(NamedTuple):
    """What the checks of children need to know."""

    limits: Mapping[str, int]
    """Of payloads, by lambda."""
    kinds: Mapping[str, bool]
    """Of the resources that children name: whether each that is declared has keys."""
    cell: OwnCell
    """That of their parents."""

    def check_cell(self, name: str) -> None:
        """Check that a task of this lambda can be written in the transaction that ends its parent.

        Raises:
            Problem: it lives in another cell.
        """
        if other := self.cell.other_cell_of(name):
            raise Problem(
                "lambda",
                f"{name[:128]} lives in cell {other}, and the task whose callback schedules it in cell {self.cell.name}: "
                "its end and theirs cannot be one transaction. Schedule it with a client in the callback",
            )


class Children:
    """Reads the children of results."""

    def __init__(self, known: LambdaCache, store: Store, cell: OwnCell = SOLE) -> None:
        """Args: `cell` is the one that the store is."""
        self._known = known
        self._store = store
        self._cell = cell
        self._resources = ResourceCache(store)

    async def add(self, results: Sequence[Result], messages: Sequence[hsc_pb2.TaskResult]) -> list[Result]:
        """Return successes with their children; those whose children cannot be written are fatal failures instead.

        The children of what did not succeed are left out.

        Raises:
            InvalidRequestError: there are too many, or they are too large.
            StoreUnavailableError: it is unknown which lambdas are registered, or which resources are declared.
        """
        for message in messages:
            if message.children or message.nodes:
                _check_size([*message.children, *message.nodes])
        origins: Mapping[TaskId, Origin] = {}
        if scheduler() is not None:
            writing = [message.claim.task_id for message in messages if message.children or message.nodes]
            origins = await task_origins(self._store, writing)
        names = {getattr(task, "lambda") for message in messages for task in _tasks(message)}
        limits = await self._known.payload_limits(names, _may_add(messages, origins))
        if any(_may_be_outdated(child, limits) for message in messages for child in _tasks(message)):
            limits = await self._known.payload_limits_now()
        kinds = await self._resources.kinds(
            read_needs(task.resources) for message in messages for task in _tasks(message) if task.resources
        )
        known = _Known(limits, kinds, self._cell)
        return [
            _with_children(result, message, known, parent_of(origins, result.task_id))
            if (message.children or message.nodes) and result.outcome is Outcome.SUCCESS
            else result
            for result, message in zip(results, messages, strict=True)
        ]


def _tasks(message: hsc_pb2.TaskResult) -> list[frontend_pb2.NewTask]:
    return [*message.children, *(node.task for node in message.nodes)]


def _may_add(messages: Sequence[hsc_pb2.TaskResult], origins: Mapping[TaskId, Origin]) -> set[str]:
    """Return the queues of tasks that require labels which these callbacks may schedule."""
    return {
        name
        for message in messages
        for name in (getattr(task, "lambda") for task in _tasks(message))
        if LABELS_MARK in name and parent_of(origins, message.claim.task_id).may_schedule(name)
    }


def _check_size(children: Sequence[frontend_pb2.NewTask | graphs_pb2.GraphNode]) -> None:
    if len(children) > _MOST_CHILDREN:
        raise InvalidRequestError(
            "results.children", f"there must be at most {_MOST_CHILDREN:,}, not {len(children):,}"
        )
    size = sum(child.ByteSize() for child in children)
    if size > _MOST_BYTES:
        raise InvalidRequestError("results.children", f"must be at most {_MOST_BYTES:,} bytes, not {size:,}")


def _may_be_outdated(child: frontend_pb2.NewTask, limits: Mapping[str, int]) -> bool:
    """Tell whether a lambda that was registered a moment ago may be the reason to refuse a child."""
    return len(child.payload) > limits.get(getattr(child, "lambda"), -1)


def _with_children(result: Result, message: hsc_pb2.TaskResult, known: _Known, parent: Parent) -> Result:
    size = sum(len(task.attachments) for task in _tasks(message))
    if size > _MOST_USE_BYTES:
        return refused(
            result,
            f"ctx.schedule: the tasks use too many attachments together ({size:,} bytes of names and hashes, at most "
            f"{_MOST_USE_BYTES:,}): pack some into one, or have one of the tasks schedule the rest",
        )
    try:
        result = result._replace(children=tuple(_child(child, known, parent) for child in message.children))
    except Problem as problem:
        return refused(result, f"ctx.schedule: {problem.field}: {problem.message}")
    try:
        nodes = tuple(_node(node, known, parent) for node in message.nodes)
        check_request(nodes)
    except Problem as problem:
        return refused(result, f"ctx.add_node: {problem.field}: {problem.message}")
    except GraphError as error:
        return refused(result, f"ctx.add_node: {error}")
    return result._replace(nodes=nodes)


def _node(asked: graphs_pb2.GraphNode, known: _Known, parent: Parent) -> NewNode:
    check_order(asked)
    node = Node(asked.label, asked.any_of, asked.ignore_failure, asked.timeout_is_final)
    edges = tuple(edges_of(asked))
    try:
        return NewNode(
            node, _child(asked.task, known, parent), max_runtime(asked), edges, restriction(Action.RUN)
        )
    except Problem as problem:
        field = (
            problem.field if problem.field.startswith("nodes[") else node_field(asked.label, problem.field)
        )
        raise Problem(field, problem.message, problem.code) from problem


def _child(asked: frontend_pb2.NewTask, known: _Known, parent: Parent) -> NewTask:
    if not asked.task_id:
        raise Problem("task_id", "a task that a callback schedules has an id that was made before")
    parent.check(getattr(asked, "lambda"))
    known.check_cell(getattr(asked, "lambda"))
    try:
        task = new_task(asked, known.limits, _HORIZON, needs_of(asked, known.kinds))
    except ProblemUnlessRepeatedError as late:
        # ctx.schedule took it in time; the attempt lasted, or its report was late. `expire` ends an expired child.
        if is_of_the_future(late.task.task_id):  # its partition could not be made while it is there
            raise late.problem from late
        task = late.task
    _check_unique(task)
    return task._replace(scheduled_by=parent.scheduled_by)


def _check_unique(task: NewTask) -> None:
    """Check what the unique key of a child asks for: its transaction has locked the end of its parent, so no other task is changed."""
    if task.unique is None:
        return
    if task.unique.on_conflict is OnConflict.REPLACE:
        raise Problem(
            "unique.on_conflict",
            "a task that a callback schedules replaces none: use IGNORE or REJECT, or a client in the callback",
        )
    if task.session is not None:
        raise Problem(
            "session",
            "a task that a callback schedules has a unique key or a session: leave one out, or use a client in the callback",
        )
