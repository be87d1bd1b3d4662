"""Search through a real Frontend: what is found, and by whom."""

from uuid import UUID

import pytest

from duly_core.access.current import set_access
from duly_core.access.grants import Access, Grant
from duly_core.access.roles import Role
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_frontend.search.answer import search
from duly_wire.enums import Outcome
from duly_wire.ids import new_task_id
from duly_wire.v1 import fleet_pb2_grpc, frontend_pb2, graphs_pb2, inspection_pb2, inspection_pb2_grpc
from tests.fixtures.services import refusal
from tests.fleet.test_fleet_hosts import a_report

LAMBDA = "mail.send"
THEIRS = "shop/bill.pay"


@pytest.fixture
async def scheduled(frontend, task_states):
    """Return the ids of a task of each of two lambdas, which have the same keys and sessions."""
    ids = {}
    for name in (LAMBDA, THEIRS):
        await task_states.register(name)
    for name in (LAMBDA, THEIRS):
        asked = [
            {"lambda": name, "idempotency_key": "key 1"},
            {"lambda": name, "session": {"key": "order/17"}},
            {"lambda": name, "unique": frontend_pb2.Unique(key="one").SerializeToString()},
        ]
        answer = await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=asked))
        ids[name] = [each.task_id for each in answer.results]
        assert all(ids[name])
    return ids


@pytest.fixture
def found(store):
    async def ask(text, limit=0):
        answer = await search(store, inspection_pb2.SearchRequest(text=text, limit=limit))
        return [
            (inspection_pb2.SearchKind.Name(hit.kind).removeprefix("SEARCH_KIND_"), hit.id)
            for hit in answer.hits
        ]

    return ask


async def test_a_task_is_found_by_the_begin_and_by_the_end_of_its_id(scheduled, found):
    task_id = scheduled[LAMBDA][0]

    for text in (task_id, task_id.upper(), task_id[:30], task_id[-12:], f"{task_id[:8]}…{task_id[-8:]}"):
        assert ("TASK", task_id) in await found(text, 20), text
    assert await found(f"{task_id[:-4]}…{'0' if task_id[-1] != '0' else '1'}") == []


async def test_a_task_that_ended_is_found_by_the_end_of_its_id(task_states, found):
    claimed = await task_states.claimed()
    await set_results(task_states.store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])
    task_id = str(UUID(bytes=claimed.task_id))

    assert ("TASK", task_id) in await found(task_id[-10:])


async def test_names_of_lambdas_are_found_by_a_part(scheduled, found):
    assert await found("ill.p") == [("LAMBDA", THEIRS)]


async def test_sessions_are_found_by_the_begin_of_their_key_in_every_namespace(scheduled, store):
    answer = await search(store, inspection_pb2.SearchRequest(text="order/"))

    assert [(hit.namespace, hit.id, hit.tasks) for hit in answer.hits] == [
        ("", "order/17", 1),
        ("shop", "order/17", 1),
    ]


async def test_tasks_are_found_by_whole_keys(scheduled, found):
    assert sorted(await found("key 1")) == sorted(("IDEMPOTENCY_KEY", ids[0]) for ids in scheduled.values())
    assert sorted(await found("one")) == sorted(("UNIQUE_KEY", ids[2]) for ids in scheduled.values())
    assert await found("key") == []


async def test_graphs_are_found_by_name_and_by_id(frontend, task_states, found):
    await task_states.register()
    graph_id = str(new_task_id())
    node = {"label": "a", "task": {"lambda": LAMBDA}}
    graph = graphs_pb2.ScheduleGraphRequest(graph_id=graph_id, name="Nightly", nodes=[node])
    assert not (await frontend.graphs.ScheduleGraph(graph)).HasField("error")

    for text in ("ightly", graph_id, graph_id[:28], graph_id[-12:]):
        assert ("GRAPH", graph_id) in await found(text), text


async def test_hosts_are_found_by_a_part_of_their_name(frontend, task_states, found):
    await task_states.register()
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report(lambdas=(LAMBDA,)))

    assert await found("RACK") == [("HOST", "rack-1:1:a")]


async def test_causes_are_found_by_their_text_and_by_their_fingerprint(store, task_states, found):
    for number in (1, 2):
        claimed = await task_states.claimed()
        failed = Result(
            claimed.task_id,
            claimed.token,
            Outcome.FATAL_FAILURE,
            failure_kind=1,
            failure_message=f"ValueError: row {number} is gone",
        )
        await set_results(store, [failed])

    answer = await search(store, inspection_pb2.SearchRequest(text="is gone"))

    (hit,) = answer.hits
    assert (hit.kind, hit.text, hit.tasks) == (
        inspection_pb2.SEARCH_KIND_CAUSE,
        "ValueError: row … is gone",
        2,
    )
    assert await found(hit.id) == [("CAUSE", hit.id)]


async def test_more_hits_of_a_kind_than_asked_for_are_told(scheduled, store):
    answer = await search(store, inspection_pb2.SearchRequest(text="order/", limit=1))

    assert len(answer.hits) == 1
    assert [*answer.more] == [inspection_pb2.SEARCH_KIND_SESSION]


async def test_a_caller_finds_only_what_it_may_read(scheduled, found):
    theirs = scheduled[THEIRS]
    ours = scheduled[LAMBDA]
    set_access(Access("ann", [Grant("ann", Role.OPERATOR, "mail.*")]))

    assert ("TASK", ours[0]) in await found(ours[0])
    for text in (theirs[0], theirs[0][-12:], theirs[0][:30] + "…"):
        assert not any(hit[1] in theirs for hit in await found(text)), text
    assert await found("key 1") == [("IDEMPOTENCY_KEY", ours[0])]
    assert await found("ill.p") == []
    assert await found("order/") == []  # sessions belong to whole namespaces


async def test_who_may_read_a_namespace_finds_its_sessions(scheduled, store):
    set_access(Access("ann", [Grant("ann", Role.OPERATOR, "shop/*")]))

    answer = await search(store, inspection_pb2.SearchRequest(text="order/"))

    assert [(hit.namespace, hit.id) for hit in answer.hits] == [("shop", "order/17")]


async def test_a_search_out_of_bounds_is_refused(frontend, task_states):
    inspection = inspection_pb2_grpc.InspectionServiceStub(frontend.channel)
    for asked, field in (
        ({"text": ""}, "text"),
        ({"text": "   "}, "text"),
        ({"text": "x" * 301}, "text"),
        ({"text": "a\x00b"}, "text"),
        ({"text": "abc", "limit": 21}, "limit"),
        ({"text": "abc", "limit": -1}, "limit"),
    ):
        refused = await refusal(inspection.Search(inspection_pb2.SearchRequest(**asked)))

        assert refused.code.name == "INVALID_ARGUMENT"
        assert field in refused.message
