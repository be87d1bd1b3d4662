"""Pages of an installation with cells: rows say their cell, lists can be of one, and without cells nothing of it is there."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from httpx import Response

import duly
from duly_console.board import age_of
from duly_core.limits.changes import ResourceChange, put_resource
from duly_core.limits.store import ResourceLimit
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks.task import ResourceNeed
from duly_wire.v1 import (
    gates_pb2,
    gates_pb2_grpc,
    limits_pb2,
    limits_pb2_grpc,
    pools_pb2,
    pools_pb2_grpc,
    problems_pb2,
    registry_pb2,
    registry_pb2_grpc,
)
from tests.fixtures.console import Browser, browse
from tests.fixtures.routed_cells import RoutedCells, serves
from tests.fixtures.task_states import TaskStates

LISTS = (
    *("/tasks", "/lambdas", "/queues", "/dead-letters?by=task"),
    *("/gates", "/slo", "/sessions", "/graphs", "/time-tables"),
)
FILTER = '<select id="f-cell" name="cell">'


@pytest.fixture
async def browser_of_cells(
    channel_of_cells: grpc.aio.Channel, routed_cells: RoutedCells, tmp_path: Path
) -> AsyncIterator[Browser]:
    """A browser on an installation of two cells, each with a lambda and one of each thing that lists have."""
    names = {"a": "plain", "b": "b/other"}
    lambdas = [registry_pb2.Lambda(name=name, owner="us") for name in names.values()]
    registry = registry_pb2_grpc.RegistryServiceStub(channel_of_cells)
    await registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))
    for cell, name in names.items():
        async with Store(StoreSettings(dsn=routed_cells.dsns[cell])) as store:
            states = TaskStates(store)
            await states.fail(await states.claimed(lambda_name=name))
    async with duly.AsyncClient(f"unix:{tmp_path}/frontend") as client:
        for cell, name in names.items():
            await client.schedule(name, 1, session=duly.Session("one"))
            await client.put_gate(f"stop-{cell}", duly.GateKind.PAUSE, name)
            await client.put_objective(name, 0.9, start_within=timedelta(seconds=1))
            await client.create_table(f"daily-{cell}", name, every=timedelta(days=1))
            async with client.graph(f"graph of {cell}") as graph:
                graph.task(name, 1)
    async with browse(cast("Any", SimpleNamespace(address=f"unix:{tmp_path}/frontend"))) as opened:
        yield opened


def _rows(page: Response) -> Mapping[str, int]:
    """How many rows a page has of each cell."""
    return {cell: page.text.count(f'<td data-label="Cell">{cell}</td>') for cell in ("a", "b")}


@pytest.mark.parametrize("path", LISTS)
async def test_rows_of_lists_say_their_cell_and_a_filter_shows_one(
    browser_of_cells: Browser, path: str
) -> None:
    whole = await browser_of_cells.get(path)
    of_one = await browser_of_cells.get(f"{path}{'&' if '?' in path else '?'}cell=b")

    shown, shown_of_one = _rows(whole), _rows(of_one)
    assert shown["a"] >= 1
    assert shown["b"] >= 1
    assert shown_of_one == {"a": 0, "b": shown["b"]}
    assert FILTER in whole.text
    assert '<option value="b" selected>b</option>' in of_one.text


async def test_pages_of_one_thing_say_its_cell_and_the_overview_how_each_stands(
    browser_of_cells: Browser, routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    of_lambda = await browser_of_cells.get("/lambdas/b%2Fother")
    overview = await browser_of_cells.get("/")
    assert '<dt>Cell</dt><dd><a href="/lambdas?cell=b">b</a></dd>' in of_lambda.text
    assert "Cells:" in overview.text

    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)

    overview = await browser_of_cells.get("/")
    away = await browser_of_cells.get("/tasks?cell=b")
    assert (
        '<a href="/queues?cell=b">b</a> <span class="status s-fatal-failure">does not answer' in overview.text
    )
    assert away.status_code == 503
    assert "Not shown: cell b: " in away.text


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/", "No task is due, waits or runs"),
        ("/tasks", "No task matches"),
        ("/lambdas", "No lambda is registered"),
        ("/queues", "No queue with tasks matches"),
        ("/dead-letters?by=task", "No dead letter matches"),
        ("/gates", "No gate is in force"),
        ("/gates", "No lambda has a breaker"),
        ("/slo", "No lambda has an objective of its own"),
        ("/sessions", "No session has a task that has not ended"),
        ("/graphs", "No graph matches"),
        ("/time-tables", "There is no time table"),
        ("/hosts", "No host matches"),
        ("/search?q=nothing", "Nothing was found"),
    ],
)
async def test_a_list_without_rows_is_not_said_to_be_empty_of_a_cell_that_is_away(
    channel_of_cells: grpc.aio.Channel, routed_cells: RoutedCells, tmp_path: Path, path: str, told: str
) -> None:
    async with browse(cast("Any", SimpleNamespace(address=f"unix:{tmp_path}/frontend"))) as browser:
        whole = await browser.get(path)
        await routed_cells.lines["b"].cut()
        await serves(channel_of_cells, "b", expected=False)
        without_b = await browser.get(path)

    assert f'<p class="empty">{told}' in whole.text
    assert f"{told} in the cells that answer" not in whole.text
    assert f'<p class="empty">{told} in the cells that answer' in without_b.text


async def test_gates_that_hit_a_lambda_are_listed_and_those_on_all_lambdas_have_all_cells(
    browser_of_cells: Browser, channel_of_cells: grpc.aio.Channel
) -> None:
    gate = gates_pb2.Gate(name="stop-all", kind=gates_pb2.GATE_KIND_PAUSE, scope={"lambda": "*"})
    await gates_pb2_grpc.GateServiceStub(channel_of_cells).PutGate(gates_pb2.PutGateRequest(gate=gate))

    listed = await browser_of_cells.get("/gates?lambda=b/other")
    none = await browser_of_cells.get("/gates?lambda=b/other&cell=a")

    assert [name for name in ("stop-a", "stop-b", "stop-all") if f'title="{name}"' in listed.text] == [
        "stop-b",
        "stop-all",
    ]
    assert '<td data-label="Cell">a, b</td>' in listed.text
    assert '<td data-label="Cell">a</td>' in none.text  # the gate on all lambdas, as cell a has it


@pytest.mark.parametrize(("seconds", "told"), [(14, ""), (24, "24 s"), (None, "")])
def test_an_answer_that_is_older_than_frontends_look_says_how_old_it_is(
    seconds: int | None, told: str
) -> None:
    answer = problems_pb2.CellStatus(name="b", is_answering=True)
    if seconds is not None:
        answer.age.FromSeconds(seconds)

    assert age_of(answer) == told


async def test_a_resource_says_where_its_units_are_and_a_sum_of_cells_is_not_shown_as_full(
    browser_of_cells: Browser, routed_cells: RoutedCells, tmp_path: Path
) -> None:
    async with duly.AsyncClient(f"unix:{tmp_path}/frontend") as client:
        await client.put_resource("db", 2)
        await client.put_resource("lambda:b/other", 4)
    for cell, name in (("a", "plain"), ("b", "b/other")):
        async with Store(StoreSettings(dsn=routed_cells.dsns[cell])) as store:
            await TaskStates(store).claimed(lambda_name=name, resources=[ResourceNeed("db")])

    page = await browser_of_cells.get("/resources")
    form = await browser_of_cells.post("/resources/capacity", name="db", capacity=3)

    assert '<td data-label="Cell">each of 2</td>' in page.text
    assert '<td data-label="Cell">b</td>' in page.text
    assert "2 of 2 in each of 2 cells" in " ".join(page.text.split())
    assert "full" not in page.text
    assert "becomes 3 in each of 2 cells" in form.text


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/gates/put", {"kind": "pause", "lambda": "*", "name": "stop"}),
        ("/gates/remove", {"name": "old"}),
        ("/settings/change", {"name": "store_consumer.poll_interval", "value": "7s"}),
        ("/settings/reset", {"name": "store_consumer.poll_interval"}),
        ("/resources/capacity", {"name": "database", "capacity": "8"}),
        ("/pools/gpus/limits", {"minimum": "0", "maximum": "5"}),
    ],
)
async def test_a_change_while_a_cell_is_away_warns_once_of_the_cell_that_gets_it_later(
    browser_of_cells: Browser,
    routed_cells: RoutedCells,
    channel_of_cells: grpc.aio.Channel,
    path: str,
    form: Mapping[str, str],
) -> None:
    await _own(channel_of_cells)
    page = f"/{path.split('/')[1]}"
    await browser_of_cells.get(page)
    before = await browser_of_cells.confirmed("/settings/change", name="timing.claim_timeout", value="40s")
    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)
    await browser_of_cells.get(page)

    done = await browser_of_cells.confirmed(path, **form)
    later = await browser_of_cells.get(page)

    assert _LATER not in before.text
    assert done.status_code == 200, done.text
    assert _LATER in done.text
    assert _LATER not in later.text


_LATER = '<p class="notice warning" role="status">Not written yet: cell b, which does not answer, and gets it when it is back.</p>'


async def _own(channel: grpc.aio.Channel) -> None:
    """Write something of each kind that forms change."""
    old = gates_pb2.Gate(name="old", kind=gates_pb2.GATE_KIND_DROP, scope={"lambda": "*"})
    await gates_pb2_grpc.GateServiceStub(channel).PutGate(gates_pb2.PutGateRequest(gate=old))
    resources = limits_pb2.PutResourceRequest(resources=[{"name": "database", "capacity": 4}])
    await limits_pb2_grpc.LimitServiceStub(channel).PutResource(resources)
    pool = pools_pb2.Pool(name="gpus", lambdas=["mail.*"], maximum=3, driver="ours")
    await pools_pb2_grpc.PoolServiceStub(channel).PutPools(pools_pb2.PutPoolsRequest(pools=[{"pool": pool}]))


async def test_a_cell_that_is_not_there_is_refused(browser_of_cells: Browser) -> None:
    refused = await browser_of_cells.get("/tasks?cell=c")

    assert refused.status_code == 404
    assert "this installation has a, b" in refused.text


async def test_a_redrive_of_many_is_not_offered_for_a_cell_and_refused_if_it_is_sent(
    browser_of_cells: Browser,
) -> None:
    whole = await browser_of_cells.get("/dead-letters")
    assert "Redrive all" in whole.text

    narrowed = await browser_of_cells.get("/dead-letters?cell=b")
    sent = await browser_of_cells.post("/dead-letters/redrive", cell="b")

    assert 'action="/dead-letters/redrive"' not in narrowed.text
    assert "A redrive of many takes no cell." in narrowed.text
    assert sent.status_code == 400
    assert "Nothing was redriven" in sent.text


@pytest.mark.parametrize("path", ["/", *LISTS, "/hosts", "/resources"])
async def test_without_cells_nothing_of_them_is_there(
    browser: Browser, task_states: TaskStates, path: str
) -> None:
    await task_states.register()
    await task_states.fail(await task_states.claimed())
    await put_resource(task_states.store, ResourceChange.whole(ResourceLimit("db", 1)))
    page = await browser.get(path)

    assert page.status_code == 200
    assert "f-cell" not in page.text
    assert "Cell" not in page.text


async def test_without_cells_a_filter_by_cell_is_refused(browser: Browser) -> None:
    refused = await browser.get("/tasks?cell=b")

    assert refused.status_code == 400
    assert "this installation has no cells" in refused.text
