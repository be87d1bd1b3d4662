"""What there is: hosts with their Executors, the processes of services, and queues by lambda and priority."""

import asyncio

from starlette.responses import Response

from duly_console import formatting
from duly_console.board import CARDS_SHOWN, cards_of
from duly_console.errors import PageError
from duly_console.page import PAGE_SIZE, Page
from duly_console.pages.problems import problems_of
from duly_console.rendering import query
from duly_wire.v1 import fleet_pb2, problems_pb2

_ORDERS = {
    "backlog": fleet_pb2.QUEUE_ORDER_BACKLOG,
    "age": fleet_pb2.QUEUE_ORDER_AGE,
    "name": fleet_pb2.QUEUE_ORDER_UNSPECIFIED,
}
_SERVED_SHOWN = 20


async def show_hosts(page: Page) -> Response:
    """List hosts, and the processes of services to those who may see them."""
    lambda_name, with_stopped, cell = page.asked("lambda"), bool(page.asked("stopped")), page.asked("cell")
    states = [fleet_pb2.HOST_STATE_ALIVE, fleet_pb2.HOST_STATE_DRAINING, fleet_pb2.HOST_STATE_SILENT]
    request = fleet_pb2.ListHostsRequest(
        states=[] if with_stopped else states,
        cell=cell,
        page_size=PAGE_SIZE,
        page_token=page.asked("page"),
    )
    setattr(request, "lambda", lambda_name)
    hosts: fleet_pb2.ListHostsResponse
    services: list[fleet_pb2.ServiceInstance]
    hosts, services = await asyncio.gather(page.call(page.stubs.fleet.ListHosts, request), _services(page))
    said = {"lambda": lambda_name, "stopped": "1" if with_stopped else "", "cell": cell}
    return page.render(
        "hosts.html",
        hosts=hosts.hosts,
        services=services,
        cells=hosts.cell_names,
        wanted=said,
        is_filtered=any(said.values()),
        first=query("/hosts", **said) if page.asked("page") else "",
        next=query("/hosts", **said, page=hosts.next_page_token) if hosts.next_page_token else "",
    )


async def _services(page: Page) -> list[fleet_pb2.ServiceInstance]:
    if not page.viewer.may_everywhere("READ"):
        return []
    answer: fleet_pb2.ListServicesResponse = await page.call(
        page.stubs.fleet.ListServices, fleet_pb2.ListServicesRequest(alive=True)
    )
    return list(answer.services)


async def show_host(page: Page) -> Response:
    """Show a host with its Executors and lambdas."""
    host_id = page.request.path_params["host_id"]
    request = fleet_pb2.ListHostsRequest(host_ids=[host_id], include_lambdas=True)
    answer: fleet_pb2.ListHostsResponse
    problems: problems_pb2.ListProblemsResponse | None
    answer, problems = await asyncio.gather(
        page.call(page.stubs.fleet.ListHosts, request), problems_of(page, host=host_id)
    )
    if not answer.hosts:
        raise PageError(404, "There is no such host: hosts that ended are kept for a day.")
    (host,) = answer.hosts
    return page.render(
        "host.html",
        host=host,
        served=host.lambdas[:_SERVED_SHOWN],
        cards=cards_of(problems, page.viewer, page.request.url.path),
        most_cards=CARDS_SHOWN,
        left_out=problems.left_out if problems else 0,
    )


async def show_queues(page: Page) -> Response:
    """List queues: a lambda and a priority each."""
    pattern, priority, order = page.asked("lambda"), page.asked("priority"), page.asked("order") or "backlog"
    if order not in _ORDERS:
        raise PageError(400, f"There is no order {order[:50]!r}.")
    request = fleet_pb2.ListQueuesRequest(
        lambdas=[pattern] if pattern else [],
        priorities=[formatting.number(priority, "priority")] if priority else [],
        order=_ORDERS[order],
        cell=page.asked("cell"),
        page_size=PAGE_SIZE,
        page_token=page.asked("page"),
    )
    answer: fleet_pb2.ListQueuesResponse = await page.call(page.stubs.fleet.ListQueues, request)
    said = {
        "lambda": pattern,
        "priority": priority,
        "order": "" if order == "backlog" else order,
        "cell": page.asked("cell"),
    }
    return page.render(
        "queues.html",
        queues=answer.queues,
        total=answer.total_queues,
        cells=answer.cell_names,
        wanted=said | {"order": order},
        is_filtered=any(said.values()),
        first=query("/queues", **said) if page.asked("page") else "",
        next=query("/queues", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )
