"""InspectionService: reads of one task with its payload, and of the activity of Duly."""

from collections.abc import Callable

from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveSloSettings
from duly_core.counting.throughput import read_activity
from duly_core.lambdas.cache import LambdaCache
from duly_core.rpc.requests.checks import check_text
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context
from duly_frontend.access.reach import readable, refused
from duly_frontend.search.answer import search
from duly_frontend.slo.read import get_service_levels
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks.reads import TaskReader
from duly_frontend.trends.read import get_trends
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import inspection_pb2, inspection_pb2_grpc

_LONGEST_REASON = 1_024


class InspectionServicer(inspection_pb2_grpc.InspectionServiceServicer):
    """Reads for people. The table of permissions says that each call of RevealTask is audited."""

    def __init__(
        self,
        stores: FrontendStores,
        known: LambdaCache,
        rpc: RpcSettings | None = None,
        slo: Callable[[], LiveSloSettings] = LiveSloSettings,
    ) -> None:
        """Make one.

        Args:
            stores: pools of connections.
            known: knows the registered lambdas.
            rpc: the limits of answers; None: the defaults.
            slo: tells what is promised now.
        """
        self._stores = stores
        self._known = known
        self._slo = slo
        self._reader = TaskReader(stores.reads, (rpc or RpcSettings()).max_message_bytes, stores.load.reads)

    async def RevealTask(  # noqa: N802 (the wire's name)
        self, request: inspection_pb2.RevealTaskRequest, _context: Context
    ) -> inspection_pb2.RevealTaskResponse:
        check_text("reason", request.reason, _LONGEST_REASON)
        try:
            task_id = parse_task_id(request.task_id)
        except Problem as problem:
            return inspection_pb2.RevealTaskResponse(error=problem.to_wire())
        found = await readable(self._stores.reads, [task_id])
        (result,) = await self._reader.read(found, bodies=True, history=True)
        if result.HasField("task") and task_id in found.withheld:
            refusal = refused(Action.READ_PAYLOAD, getattr(result.task, "lambda"), "task_id")
            return inspection_pb2.RevealTaskResponse(error=refusal.to_wire())
        if not result.HasField("task"):
            return inspection_pb2.RevealTaskResponse(error=result.error)
        return inspection_pb2.RevealTaskResponse(revealed_task=result.task)

    async def GetActivity(  # noqa: N802
        self, _request: inspection_pb2.GetActivityRequest, _context: Context
    ) -> inspection_pb2.GetActivityResponse:
        async with self._stores.listing("GetActivity") as lists:
            found = await read_activity(lists)
        response = inspection_pb2.GetActivityResponse(
            at=to_timestamp(found.at), scheduled=found.scheduled, ended=found.ended, starts=found.starts
        )
        if found.median_lateness is not None and found.p99_lateness is not None:
            response.median_lateness.CopyFrom(to_duration(found.median_lateness))
            response.p99_lateness.CopyFrom(to_duration(found.p99_lateness))
        return response

    async def GetTrends(  # noqa: N802
        self, request: inspection_pb2.GetTrendsRequest, _context: Context
    ) -> inspection_pb2.GetTrendsResponse:
        async with self._stores.listing("GetTrends") as lists:
            return await get_trends(lists, request, self._slo())

    async def GetServiceLevels(  # noqa: N802
        self, request: inspection_pb2.GetServiceLevelsRequest, _context: Context
    ) -> inspection_pb2.GetServiceLevelsResponse:
        async with self._stores.listing("GetServiceLevels") as lists:
            return await get_service_levels(lists, self._slo(), self._known, getattr(request, "lambda"))

    async def Search(  # noqa: N802
        self, request: inspection_pb2.SearchRequest, _context: Context
    ) -> inspection_pb2.SearchResponse:
        async with self._stores.listing("Search") as lists:
            return await search(lists, request)
