"""The part of AsyncClient that is about hosts, services and queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from duly.fleet.views import Host, LambdaQueue, ServiceInstance
from duly.transport.client_part import ClientPart
from duly_wire.enums import HostState, Priority, QueueOrder
from duly_wire.v1 import fleet_pb2

_MOST_WITH_LAMBDAS = 20


class FleetCalls(ClientPart):
    """Reads what there is; nothing of it is changed from here."""

    async def hosts(
        self,
        *,
        lambda_name: str = "",
        states: Sequence[HostState] = (),
        host_ids: Sequence[str] = (),
        include_lambdas: bool = False,
        cell: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[Host]:
        """Yield hosts by id: those that serve a lambda, are in some states, or have these ids; or all.

        Those that stopped or fell silent are kept for a day. `include_lambdas`: tell which lambdas each serves.
        `cell`: only those that report there; without cells it is refused.
        """
        pages = self.host_pages(
            lambda_name=lambda_name,
            states=states,
            host_ids=host_ids,
            include_lambdas=include_lambdas,
            cell=cell,
            page_size=page_size,
        )
        async for page in pages:
            for host in page:
                yield host

    async def host_pages(
        self,
        *,
        lambda_name: str = "",
        states: Sequence[HostState] = (),
        host_ids: Sequence[str] = (),
        include_lambdas: bool = False,
        cell: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[list[Host]]:
        """Yield what `hosts` yields a page at a time; `page_size` is 1 to 1,000, with `include_lambdas` at most 20 count."""
        caller = self._caller
        request = fleet_pb2.ListHostsRequest(
            states=[int(each) for each in states],  # type: ignore[misc]  # to mypy a number is no member
            host_ids=host_ids,
            include_lambdas=include_lambdas,
            cell=cell,
            page_size=min(page_size, _MOST_WITH_LAMBDAS) if include_lambdas else page_size,
            **{"lambda": lambda_name},
        )
        async for page in caller.pages(caller.fleet.ListHosts, request):
            yield [Host.from_proto(each) for each in page.hosts]

    async def services(self, *, alive: bool = False) -> list[ServiceInstance]:
        """Return the processes of Frontends, HSCs and Store Consumers; with `alive` only those that report.

        Raises PermissionDeniedError.
        """
        caller = self._caller
        request = fleet_pb2.ListServicesRequest(alive=alive)
        response = await caller.call(caller.fleet.ListServices, request)
        return [ServiceInstance.from_proto(each) for each in response.services]

    async def queues(
        self,
        lambdas: Sequence[str] = (),
        *,
        priorities: Sequence[Priority] = (),
        order: QueueOrder | None = None,
        include_empty: bool = False,
        include_rates: bool = False,
        cell: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[LambdaQueue]:
        """Yield how many live tasks there are by lambda, priority and status.

        - `lambdas`: names, or patterns with `*` for any characters; none: all.
        - `order`: by lambda if it is not given; BACKLOG: the most due tasks first; AGE: the longest wait first.
        - `include_empty`: queues without a live task, too. `include_rates`: fill in `recently_scheduled`.
        - `cell`: only those that live there; without cells it is refused.

        Large numbers are estimated, and say so.
        """
        pages = self.queue_pages(
            lambdas,
            priorities=priorities,
            order=order,
            include_empty=include_empty,
            include_rates=include_rates,
            cell=cell,
            page_size=page_size,
        )
        async for page in pages:
            for queue in page:
                yield queue

    async def queue_pages(
        self,
        lambdas: Sequence[str] = (),
        *,
        priorities: Sequence[Priority] = (),
        order: QueueOrder | None = None,
        include_empty: bool = False,
        include_rates: bool = False,
        cell: str = "",
        page_size: int = 100,
    ) -> AsyncIterator[list[LambdaQueue]]:
        """Yield what `queues` yields a page at a time; `page_size` is 1 to 1,000."""
        caller = self._caller
        request = fleet_pb2.ListQueuesRequest(
            lambdas=lambdas,
            priorities=[int(each) for each in priorities],  # type: ignore[misc]  # to mypy a number is no member
            order=int(order or 0),  # type: ignore[arg-type]
            include_empty=include_empty,
            include_rates=include_rates,
            cell=cell,
            page_size=page_size,
        )
        async for page in caller.pages(caller.fleet.ListQueues, request):
            yield [LambdaQueue.from_proto(each, page) for each in page.queues]
