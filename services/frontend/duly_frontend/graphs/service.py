"""GraphService: writes graphs, all or nothing, and reads and cancels them."""

from collections.abc import Callable, Iterable
from datetime import UTC, timedelta
from functools import partial
from typing import TypeVar

from duly_core.access.current import current_caller, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.errors import InvalidRequestError, StoreUnavailableError, TooMuchError
from duly_core.events.wait_nodes import is_wait_lambda, wait_policy
from duly_core.graphs import definitions as graph_definitions
from duly_core.graphs import reads as graph_reads
from duly_core.graphs import store as store_graphs
from duly_core.graphs.store import GraphScheduling
from duly_core.lambdas.cache import LambdaCache
from duly_core.lambdas.store import register
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.requests.attachment_uses import not_stored
from duly_core.rpc.requests.checks import page_size, read_duration
from duly_core.rpc.requests.new_nodes import node_field
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context
from duly_core.tasks.waiting import enter_sessions
from duly_core.traffic.slices import Steps, each
from duly_frontend import events
from duly_frontend.access.reach import check_lambda, refused
from duly_frontend.graphs import validation
from duly_frontend.graphs import wire as graph_answers
from duly_frontend.lists import page_token
from duly_frontend.lists.restricted import read_page
from duly_frontend.settings import FrontendSettings
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks.completion_watcher import CompletionWatcher
from duly_wire.ids import id_text
from duly_wire.v1 import graphs_pb2, graphs_pb2_grpc, task_pb2

Result = TypeVar("Result")

_DEFAULT_WAIT = timedelta(seconds=20)
_A_STEP = 500
"""Ids that are written as text."""
_LOOKED_AT = 100
"""Definitions that one call looks at for a caller who may see some of them."""
_TRIES = 5


class GraphServicer(graphs_pb2_grpc.GraphServiceServicer):
    """An answer with an error has changed nothing."""

    def __init__(
        self,
        stores: FrontendStores,
        settings: FrontendSettings,
        known: LambdaCache,
        notifier: Notifier,
        rpc: RpcSettings | None = None,
        live: Callable[[], LiveFrontendSettings] | None = None,
        resources: ResourceCache | None = None,
    ) -> None:
        """Make one; `rpc` has the limits of answers (None: the defaults), `live` returns those of calls that hold now."""
        self._stores = stores
        self._live = live or (lambda: settings)
        self._known = known
        self._notifier = notifier
        self._most_bytes = (rpc or RpcSettings()).max_message_bytes
        self._resources = resources or ResourceCache(stores.reads)
        self._ends = CompletionWatcher(
            stores.reads, graph_reads.finished_of, partial(events.load_refused, "waits")
        )

    async def _sliced(self, steps: Steps[Result]) -> Result:
        return await self._stores.load.calls.large.run(current_caller(), steps)

    def close(self) -> None:
        """Answer the long polls: the server is about to stop."""
        self._ends.close()

    async def ScheduleGraph(  # noqa: N802 (the wire's name)
        self, request: graphs_pb2.ScheduleGraphRequest, _context: Context
    ) -> graphs_pb2.ScheduleGraphResponse:
        try:
            await self._sliced(_checking_lambdas(Action.SCHEDULE, request.nodes))
        except Problem as problem:
            events.graphs_refused.inc()
            return graphs_pb2.ScheduleGraphResponse(error=problem.to_wire())
        names = {getattr(node.task, "lambda") for node in request.nodes}
        waits = {name for name in names if is_wait_lambda(name)}
        limits = await self._known.payload_limits(names, names)
        # these are registered with the first graph that has one
        limits = {name: wait_policy(name).payload_limit for name in waits} | {**limits} if waits else limits
        kinds = await self._resources.kinds(await self._sliced(validation.reading_needs(request.nodes)))
        try:
            graph = await self._sliced(
                validation.checking_graph(request, limits, self._live().horizon, kinds)
            )
        except Problem as problem:
            if await self._was_written(request):  # when its times had not passed, and its lambdas were there
                return await self._repeated(parse_task_id(request.graph_id, "graph_id"), len(request.nodes))
            events.graphs_refused.inc()
            return graphs_pb2.ScheduleGraphResponse(error=problem.to_wire())
        parameters = await self._sliced(store_graphs.writing_parameters(graph))
        async with self._stores.load.graphs.turn(current_caller()):
            answer = await store_graphs.schedule_graph(self._stores.writes, graph, parameters)
            if answer.verdict is GraphScheduling.UNKNOWN_LAMBDA and waits:
                await register(self._stores.writes, [wait_policy(name) for name in sorted(waits)])
                self._known.forget()
                answer = await store_graphs.schedule_graph(self._stores.writes, graph, parameters)
        if answer.missing is not None:
            events.graphs_refused.inc()
            label, missing = answer.missing
            lacking = not_stored(missing, node_field(label, "attachments"))
            return graphs_pb2.ScheduleGraphResponse(error=lacking.to_wire())
        if answer.verdict in graph_answers.REFUSALS:
            events.graphs_refused.inc()
            return graphs_pb2.ScheduleGraphResponse(error=graph_answers.REFUSALS[answer.verdict].to_wire())
        if answer.due_in is not None:
            roots = store_graphs.roots(graph)
            self._notifier.due_in(answer.due_in, {task.lambda_name for task in roots}, len(roots))
            if any(task.session is not None for task in roots):
                await self._let_enter()
            events.graphs_taken.inc()
            events.taken.inc(len(graph.nodes))
        if answer.verdict is GraphScheduling.REPEATED:
            return await self._repeated(graph.graph_id, len(graph.nodes))
        return graphs_pb2.ScheduleGraphResponse(
            graph_id=id_text(graph.graph_id),
            created=True,
            task_ids=await self._sliced(each(lambda task: id_text(task.task_id), graph.tasks, _A_STEP)),
        )

    async def _let_enter(self) -> None:
        """Put nodes that may run into their sessions; what is left then is for a Store Consumer."""
        try:
            entered = await enter_sessions(self._stores.writes)
        except StoreUnavailableError:
            return
        for name, ahead in entered.items():
            self._notifier.due_in(ahead, {name})

    async def _was_written(self, request: graphs_pb2.ScheduleGraphRequest) -> bool:
        try:
            graph_id = parse_task_id(request.graph_id, "graph_id")
        except Problem:
            return False
        digest = await self._sliced(validation.digesting(request))
        return await store_graphs.is_repeated(self._stores.writes, graph_id, digest)

    async def _repeated(self, graph_id: bytes, asked: int) -> graphs_pb2.ScheduleGraphResponse:
        # those that callbacks added come last
        nodes = (await graph_reads.get_nodes(self._stores.writes, graph_id))[:asked]
        return graphs_pb2.ScheduleGraphResponse(
            graph_id=id_text(graph_id), task_ids=[str(node["task_id"]) for node in nodes]
        )

    async def GetGraph(  # noqa: N802
        self, request: graphs_pb2.GetGraphRequest, _context: Context
    ) -> graphs_pb2.GetGraphResponse:
        try:
            graph_id = parse_task_id(request.graph_id, "graph_id")
            state = await self._state(graph_id)
        except Problem as problem:
            return graphs_pb2.GetGraphResponse(error=problem.to_wire())
        response = graphs_pb2.GetGraphResponse(graph=state)
        if not request.without_nodes:
            async with self._stores.load.reads.turn(current_caller()):
                rows = await graph_reads.get_nodes(self._stores.reads, graph_id)
            rows = [_without_run(row) for row in rows]
            began_at = state.created_at.ToDatetime(UTC)
            timeline = await self._sliced(graph_reads.computing_timeline(rows, began_at))
            to_wire = partial(graph_answers.node_to_wire, ready_at=timeline.ready_at)
            response.nodes.extend(await self._sliced(each(to_wire, rows)))
            response.critical_path.extend(await self._sliced(each(graph_answers.step_to_wire, timeline.path)))
            if rows:
                response.read_at.FromDatetime(rows[0]["read_at"])
        if 0 <= self._most_bytes < response.ByteSize():
            raise TooMuchError(
                f"graph_id: the answer would have more than {self._most_bytes:,} bytes (rpc.max_message_bytes): "
                "ask without_nodes, or raise that setting"
            )
        return response

    async def WaitGraph(  # noqa: N802
        self, request: graphs_pb2.WaitGraphRequest, _context: Context
    ) -> graphs_pb2.WaitGraphResponse:
        timeout = self._timeout(request)
        try:
            graph_id = parse_task_id(request.graph_id, "graph_id")
            if restriction(Action.READ) is not None:
                await self._state(graph_id)
            await self._ends.wait([graph_id], timeout, current_caller())
            return graphs_pb2.WaitGraphResponse(graph=await self._state(graph_id))
        except Problem as problem:
            return graphs_pb2.WaitGraphResponse(error=problem.to_wire())

    async def ListGraphs(  # noqa: N802
        self, request: graphs_pb2.ListGraphsRequest, _context: Context
    ) -> graphs_pb2.ListGraphsResponse:
        size = page_size(request.page_size)
        if "\x00" in request.name:
            raise InvalidRequestError("name", "must be without NUL")
        before = page_token.read(request)
        async with self._stores.listing("ListGraphs") as lists:
            rows = await graph_reads.list_graphs(
                lists,
                name=request.name,
                running=request.running,
                before=before,
                limit=size + 1,
                scope=restriction(Action.READ),
            )
        token = page_token.write(request, rows[size - 1]["graph_id"].bytes) if len(rows) > size else ""
        graphs = [graph_answers.graph_to_wire(row) for row in rows[:size]]
        return graphs_pb2.ListGraphsResponse(graphs=graphs, next_page_token=token)

    async def CancelGraph(  # noqa: N802
        self, request: graphs_pb2.CancelGraphRequest, _context: Context
    ) -> graphs_pb2.CancelGraphResponse:
        try:
            graph_id = parse_task_id(request.graph_id, "graph_id")
            state = await self._state(graph_id, Action.CHANGE)
            if state.status != graphs_pb2.GRAPH_STATUS_RUNNING:
                if state.cancel_requested:  # by an earlier call, of which the reply may have been lost
                    return graphs_pb2.CancelGraphResponse(graph=state)
                return graphs_pb2.CancelGraphResponse(error=graph_answers.FINISHED.to_wire())
            cancelled = await store_graphs.cancel_graph(self._stores.writes, graph_id)
            if cancelled.released:
                self._notifier.due_in(min(cancelled.released.values()), cancelled.released)
            return graphs_pb2.CancelGraphResponse(graph=await self._state(graph_id, Action.CHANGE))
        except Problem as problem:
            return graphs_pb2.CancelGraphResponse(error=problem.to_wire())

    async def PutGraphDefinition(  # noqa: N802
        self, request: graphs_pb2.PutGraphDefinitionRequest, _context: Context
    ) -> graphs_pb2.PutGraphDefinitionResponse:
        try:
            await self._sliced(_checking_lambdas(Action.REGISTER, request.nodes))
            definition = await self._sliced(
                validation.checking_definition(request.name, request.nodes, fail_fast=request.fail_fast)
            )
            lambdas = {getattr(node.task, "lambda") for node in request.nodes}
            for _ in range(
                _TRIES
            ):  # somebody else may store a version meanwhile: the right to replace that is another
                async with self._stores.load.graphs.turn(current_caller()):
                    put = await graph_definitions.put_definition(
                        self._stores.writes,
                        request.name,
                        definition,
                        lambdas,
                        await self._newest_to_replace(request.name),
                    )
                if put is not None:
                    return graphs_pb2.PutGraphDefinitionResponse(version=put[0], created=put[1])
        except Problem as problem:
            return graphs_pb2.PutGraphDefinitionResponse(error=problem.to_wire())
        message = f"versions of {request.name!r} are stored faster than this one could be"
        raise RuntimeError(message)

    async def GetGraphDefinition(  # noqa: N802
        self, request: graphs_pb2.GetGraphDefinitionRequest, _context: Context
    ) -> graphs_pb2.GetGraphDefinitionResponse:
        try:
            validation.check_version(request)
        except Problem as problem:
            return graphs_pb2.GetGraphDefinitionResponse(error=problem.to_wire())
        found = await graph_definitions.get_definition(self._stores.reads, request.name, request.version)
        scope, payloads = restriction(Action.READ), restriction(Action.READ_PAYLOAD)
        definition = _readable(found, scope, payloads) if found else None
        if definition is None:
            return graphs_pb2.GetGraphDefinitionResponse(error=_no_definition(request).to_wire())
        return graphs_pb2.GetGraphDefinitionResponse(definition=definition)

    async def ListGraphDefinitions(  # noqa: N802
        self, request: graphs_pb2.ListGraphDefinitionsRequest, _context: Context
    ) -> graphs_pb2.ListGraphDefinitionsResponse:
        size = page_size(request.page_size)
        scope = restriction(Action.READ)
        async with self._stores.listing("ListGraphDefinitions") as lists:
            listed, token = await read_page(
                request.page_token,
                size,
                size if scope is None else _LOOKED_AT,
                lambda after, skipped, limit: graph_definitions.list_definitions(
                    lists, after=after, skipped=skipped, limit=limit
                ),
                lambda each: (
                    graph_answers.definition_to_wire(each)
                    if scope is None or all(map(scope.covers, each.lambdas))
                    else None
                ),
                lambda each: each.name,
            )
        return graphs_pb2.ListGraphDefinitionsResponse(definitions=listed, next_page_token=token)

    async def _newest_to_replace(self, name: str) -> int | None:
        """Return the newest version (0: there is none) if the caller may replace it; None: it may replace any.

        Raises:
            Problem: it is of lambdas that are not the caller's.
        """
        scope = restriction(Action.REGISTER)
        if scope is None:
            return None
        newest = await graph_definitions.get_definition(self._stores.writes, name, 0)
        if newest is None:
            return 0
        if not all(map(scope.covers, newest.lambdas)):
            raise refused(Action.REGISTER, name, "name")
        return newest.version

    async def _state(self, graph_id: bytes, action: Action = Action.READ) -> graphs_pb2.GraphState:
        found = await graph_reads.get_graphs(self._stores.reads, [graph_id], restriction(action))
        row = found.get(graph_id)
        if row is None:
            raise Problem(
                "graph_id",
                "there is no such graph: never scheduled, or removed some days after its end",
                task_pb2.ERROR_CODE_NOT_FOUND,
            )
        return graph_answers.graph_to_wire(row)

    def _timeout(self, request: graphs_pb2.WaitGraphRequest) -> timedelta:
        if not request.HasField("timeout"):
            return _DEFAULT_WAIT
        return read_duration("timeout", request.timeout, self._live().max_wait)


def _without_run(row: graph_reads.NodeRow) -> graph_reads.NodeRow:
    """Return a node; one that waits for an event is claimed to begin its wait, and runs nothing."""
    return {**row, "started_at": None} if is_wait_lambda(row["lambda"] or "") else row


def _checking_lambdas(action: Action, nodes: Iterable[graphs_pb2.GraphNode]) -> Steps[None]:
    """Check in steps that the caller may do this with the lambdas of all nodes, each lambda once.

    Raises:
        Problem: it may not.
    """
    scope = restriction(action)
    if scope is None:
        return
    found: set[str] = set()
    for place, node in enumerate(nodes, start=1):
        if not place % _A_STEP:
            yield
        name = getattr(node.task, "lambda")
        if name not in found:
            check_lambda(scope, action, name, node_field(node.label, "lambda"))
            found.add(name)


def _covers(scope: Scope, definition: graphs_pb2.GraphDefinition) -> bool:
    return all(scope.covers(getattr(node.task, "lambda")) for node in definition.nodes)


def _readable(
    stored: graph_definitions.Definition, scope: Scope | None, payloads: Scope | None
) -> graphs_pb2.GraphDefinition | None:
    """Return what may be seen of a definition by who may read, or read payloads of, these; None: nothing."""
    definition = graph_answers.definition_to_wire(stored)
    if scope is not None and not _covers(scope, definition):
        return None
    if payloads is not None and not _covers(payloads, definition):
        for node in definition.nodes:
            node.task.ClearField("payload")
        definition.payload_withheld = True
    return definition


def _no_definition(request: graphs_pb2.GetGraphDefinitionRequest) -> Problem:
    version = f" with a version {request.version}" if request.version else ""
    return Problem(
        "name",
        f"there is no graph definition {request.name!r}{version}: `duly graphs definitions` lists them",
        task_pb2.ERROR_CODE_NOT_FOUND,
    )
