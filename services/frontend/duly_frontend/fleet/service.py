"""FleetService: takes what Controllers report, and shows hosts, services and queues."""

from collections.abc import Callable

from duly_core.access.current import current_access, require, restriction
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError, PermissionDeniedError
from duly_core.fleet.host_reads import list_hosts
from duly_core.fleet.hosts import HostReport, Verdict, report_host
from duly_core.fleet.services import list_services
from duly_core.lambdas.cache import LambdaCache
from duly_core.rpc.requests.checks import check_holder, page_size
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.stubs import Context
from duly_frontend.fleet.hosts import host_to_wire, read_lambdas, read_report, read_states, service_to_wire
from duly_frontend.fleet.queue_lists import list_queues
from duly_frontend.fleet.queue_request import read_request
from duly_frontend.fleet.queue_snapshots import QueueSnapshots
from duly_frontend.lists import page_token
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc

_MOST_IDS = 100
_MOST_WITH_LAMBDAS = 20
_MOST_LABEL_QUEUES = 2_000
"""As many queues as a worker may ask for."""


class FleetServicer(fleet_pb2_grpc.FleetServiceServicer):
    """Nothing is decided by what it keeps and counts: people look at it."""

    def __init__(
        self,
        stores: FrontendStores,
        known: LambdaCache,
        host_settings: Callable[[], fleet_pb2.HostSettings | None] = lambda: None,
    ) -> None:
        """Args: `host_settings` returns what operators have set of what hosts follow; None: it is unknown yet."""
        self._stores = stores
        self._known = known
        self._host_settings = host_settings
        self._snapshots = QueueSnapshots()

    async def ReportHost(  # noqa: N802 (the wire's name)
        self, request: fleet_pb2.ReportHostRequest, _context: Context
    ) -> fleet_pb2.ReportHostResponse:
        report, lambdas = read_report(request), read_lambdas(request)
        for served in lambdas or ():
            require(Action.RUN, served.name)
        access = current_access()
        verdict, at, is_to_drain = await report_host(self._stores.writes, report, lambdas, access.principal)
        if verdict is Verdict.NOT_YOURS:
            raise PermissionDeniedError(
                f"{access.principal!r} may not report the host {report.host_id!r}, which another principal reported first: start "
                "the worker again, which gives it another id"
            )
        return fleet_pb2.ReportHostResponse(
            lambdas_wanted=verdict is Verdict.LAMBDAS_WANTED,
            settings=self._host_settings(),
            store_at=None if at is None else to_timestamp(at),
            label_queues=await self._label_queues(report),
            drain=is_to_drain,
        )

    async def _label_queues(self, report: HostReport) -> list[str]:
        """Return the queues of tasks that require no other labels than some Executor of the host has, and that it may run."""
        labels = [frozenset(executor.labels) for executor in report.executors if executor.labels]
        if not labels:
            return []
        await self._known.payload_limits(set())
        scope = restriction(Action.RUN)
        queues = self._known.label_queues
        found = [
            name
            for name, queue in queues.items()
            if any(queue.required <= each for each in labels) and (scope is None or scope.covers(name))
        ]
        if len(found) > _MOST_LABEL_QUEUES:  # most will be of lambdas that others serve
            hosts = await list_hosts(
                self._stores.reads, limit=1, host_ids=[report.host_id], include_lambdas=True
            )
            served = {each.name for host in hosts for each in host.lambdas}
            found = [name for name in found if queues[name].base in served]
        return sorted(found)[:_MOST_LABEL_QUEUES]

    async def ListHosts(  # noqa: N802
        self, request: fleet_pb2.ListHostsRequest, _context: Context
    ) -> fleet_pb2.ListHostsResponse:
        size = page_size(request.page_size)
        if request.include_lambdas:
            if request.page_size > _MOST_WITH_LAMBDAS:
                raise InvalidRequestError(
                    "page_size", f"must be at most {_MOST_WITH_LAMBDAS} with include_lambdas"
                )
            size = min(size, _MOST_WITH_LAMBDAS)
        if len(request.host_ids) > _MOST_IDS:
            raise InvalidRequestError(
                "host_ids", f"there may be at most {_MOST_IDS}, not {len(request.host_ids):,}"
            )
        for host_id in request.host_ids:
            check_holder("host_ids", host_id)
        lambda_name = getattr(request, "lambda")
        if lambda_name:
            check_lambda_name("lambda", lambda_name)
            require(Action.READ, lambda_name)
        async with self._stores.listing("ListHosts") as lists:
            found = await list_hosts(
                lists,
                after=page_token.read_name(request.page_token),
                limit=size + 1,
                lambda_name=lambda_name,
                states=read_states(request.states),
                host_ids=request.host_ids,
                scope=restriction(Action.READ),
                include_lambdas=request.include_lambdas,
            )
        token = page_token.write_name(found[size - 1].report.host_id) if len(found) > size else ""
        return fleet_pb2.ListHostsResponse(hosts=map(host_to_wire, found[:size]), next_page_token=token)

    async def ListServices(  # noqa: N802
        self, request: fleet_pb2.ListServicesRequest, _context: Context
    ) -> fleet_pb2.ListServicesResponse:
        async with self._stores.listing("ListServices") as lists:
            found = await list_services(lists, alive=request.alive)
        return fleet_pb2.ListServicesResponse(services=map(service_to_wire, found))

    async def ListQueues(  # noqa: N802
        self, request: fleet_pb2.ListQueuesRequest, _context: Context
    ) -> fleet_pb2.ListQueuesResponse:
        wanted = read_request(request)
        async with self._stores.listing("ListQueues") as lists:
            return await list_queues(lists, await self._snapshots.get(lists), wanted)

    def close(self) -> None:
        """Forget what was counted."""
        self._snapshots.close()
