"""Every RPC by every role: who may make it, and that a refusal changes nothing and tells nothing."""

import hashlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.methods import KNOWN_CALLERS, NEEDS
from duly_core.access.roles import Role
from duly_core.attachments.settings import AttachmentSettings
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc, graphs_pb2, graphs_pb2_grpc, task_pb2
from tests.fixtures.role_calls import METHODS, PAYLOAD, REQUESTS, Answer, Thing, make, task, unknown
from tests.fixtures.services import serve_frontend, serve_hsc

OURS, THEIRS, GHOST = "mail.send", "shop/bill.pay", "shop/bill.gone"
MAKER = "maker"
"""Makes what belongs to others."""
ROLES = ("client", "owner", "host", "operator", "auditor", "nobody")
"""For the lambdas `mail.*`."""
_BY_CONTROLLERS = {
    f"/duly.v1.ControllerService/{method}" for method in ("AttachExecutor", "NextWork", "GetHostSettings")
}
"""A Controller serves them to its own Executors."""

DENIED = "PERMISSION_DENIED"
_OWN = {"client": "OK", "owner": "OK"}
_READ = {"client": "OK", "owner": "OK", "operator": "OK", "auditor": "OK"}
_CHANGE = {"client": "OK", "owner": "OK", "operator": "OK"}
_REDRIVE = {"owner": "OK", "operator": "OK"}
_REGISTER = {"owner": "OK"}
_RUN = {"host": "OK"}
_UPLOAD = _OWN | _RUN
_SOMEBODY = dict.fromkeys(ROLES, "OK")

EXPECTED: Mapping[str, Mapping[str, str]] = {
    "/duly.v1.FrontendService/Schedule": _OWN,
    "/duly.v1.FrontendService/ScheduleStream": _OWN,
    "/duly.v1.FrontendService/GetTask": _READ,
    "/duly.v1.FrontendService/FindTask": _READ,
    "/duly.v1.FrontendService/ListTasks": _READ,
    "/duly.v1.FrontendService/WaitTask": _READ,
    "/duly.v1.FrontendService/CancelTask": _CHANGE,
    "/duly.v1.FrontendService/UpdateTask": _CHANGE,
    "/duly.v1.FrontendService/CancelTasks": _CHANGE,
    "/duly.v1.FrontendService/RedriveTask": dict.fromkeys(_REDRIVE, "NOT_A_DEAD_LETTER"),
    "/duly.v1.FrontendService/RedriveTasks": _REDRIVE,
    "/duly.v1.FrontendService/PurgeTasks": _REDRIVE,
    "/duly.v1.GraphService/ScheduleGraph": _OWN,
    "/duly.v1.GraphService/GetGraph": _READ,
    "/duly.v1.GraphService/WaitGraph": _READ,
    "/duly.v1.GraphService/ListGraphs": _READ,
    "/duly.v1.GraphService/CancelGraph": _CHANGE,
    "/duly.v1.GraphService/PutGraphDefinition": _REGISTER,
    "/duly.v1.GraphService/GetGraphDefinition": _READ,
    "/duly.v1.GraphService/ListGraphDefinitions": _READ,
    "/duly.v1.AttachmentService/BeginUploads": _UPLOAD,
    "/duly.v1.AttachmentService/UploadParts": _UPLOAD,
    "/duly.v1.AttachmentService/FinishUploads": _UPLOAD,
    # a host reads by the token of a claim; content is not for auditors
    "/duly.v1.AttachmentService/FetchParts": dict.fromkeys((*_CHANGE, "host"), "NOT_FOUND"),
    "/duly.v1.AttachmentService/ListAttachments": _CHANGE,
    # under the token of a claim, which nobody has here
    "/duly.v1.OutputService/AppendOutput": dict.fromkeys(_RUN, "NOT_FOUND"),
    "/duly.v1.OutputService/ReadOutput": _CHANGE,
    "/duly.v1.WatchService/Watch": _READ,
    "/duly.v1.GateService/PutGate": _REDRIVE,
    "/duly.v1.GateService/DeleteGates": dict.fromkeys(_REDRIVE, "UNKNOWN_GATE"),
    "/duly.v1.GateService/ListGates": _READ,
    "/duly.v1.GateService/PutBreaker": {},
    "/duly.v1.GateService/DeleteBreakers": {},
    "/duly.v1.GateService/ListBreakers": _READ,
    # payloads are not for auditors
    "/duly.v1.InspectionService/RevealTask": _CHANGE,
    "/duly.v1.InspectionService/GetActivity": {},
    "/duly.v1.InspectionService/GetTrends": _READ,
    "/duly.v1.InspectionService/GetServiceLevels": _READ,
    "/duly.v1.InspectionService/Search": _READ,
    "/duly.v1.LimitService/PutResource": {},
    "/duly.v1.LimitService/DeleteResource": {},
    "/duly.v1.LimitService/ListResources": _READ,
    "/duly.v1.LimitService/GetBacklog": _READ,
    "/duly.v1.ObjectiveService/PutObjective": {"operator": "OK"},
    "/duly.v1.ObjectiveService/DeleteObjectives": {"operator": "OK"},
    "/duly.v1.ObjectiveService/ListObjectives": _READ,
    "/duly.v1.PoolService/PutPools": {},
    "/duly.v1.PoolService/DeletePools": {},
    "/duly.v1.PoolService/ListPools": {},
    "/duly.v1.ProblemService/ListProblems": _READ,
    "/duly.v1.ProblemService/ListNotificationTargets": {},
    "/duly.v1.ProblemService/TestNotificationTargets": {},
    "/duly.v1.RegistryService/RegisterLambdas": {"owner": "OK", "host": "OK"},
    "/duly.v1.RegistryService/ListLambdas": _READ,
    "/duly.v1.RegistryService/GetLambda": _READ,
    "/duly.v1.RegistryService/UpdateLambda": _REDRIVE,
    "/duly.v1.RegistryService/DeleteLambda": _REDRIVE,
    "/duly.v1.RegistryService/RestoreLambda": dict.fromkeys(_REDRIVE, "UNKNOWN_LAMBDA"),
    # to the default namespace, of which they may send for some lambdas
    "/duly.v1.EventService/SendEvents": _CHANGE,
    "/duly.v1.EventAddressService/CreateEventAddresses": _CHANGE,
    "/duly.v1.EventService/GetEventKeys": {},
    "/duly.v1.EventService/ListEventKeys": {},
    "/duly.v1.RegistryService/SetFairWeights": _REDRIVE,
    "/duly.v1.RegistryService/ListFairKeys": _READ,
    "/duly.v1.SessionService/GetSession": _READ,
    "/duly.v1.SessionService/ListSessions": {},
    "/duly.v1.SessionService/UnblockSession": dict.fromkeys(_REDRIVE, "NOT_BLOCKED"),
    "/duly.v1.SettingsService/ListSettings": {},
    "/duly.v1.SettingsService/SetSettings": {},
    "/duly.v1.SettingsService/ResetSettings": {},
    "/duly.v1.TimeTableService/PutTimeTables": _REGISTER,
    # a time table is its owner's: clients have no tasks of their own in it
    "/duly.v1.TimeTableService/GetTimeTables": _READ | {"client": "UNKNOWN_TIME_TABLE"},
    "/duly.v1.TimeTableService/ListTimeTables": _READ,
    "/duly.v1.TimeTableService/DeleteTimeTables": _REGISTER,
    "/duly.v1.TimeTableService/PauseTimeTables": _REGISTER,
    "/duly.v1.TimeTableService/ResumeTimeTables": _REGISTER,
    "/duly.v1.TimeTableService/BackfillTimeTable": _REGISTER,
    # one without a namespace is for all lambdas
    "/duly.v1.TimeTableService/PutCalendars": {},
    "/duly.v1.TimeTableService/GetCalendars": dict.fromkeys(_READ, "UNKNOWN_CALENDAR"),
    "/duly.v1.TimeTableService/ListCalendars": _READ,
    "/duly.v1.TimeTableService/DeleteCalendars": {},
    "/duly.v1.ExplainService/ExplainTask": _READ,
    "/duly.v1.FleetService/ReportHost": _RUN,
    "/duly.v1.FleetService/ListHosts": _READ,
    "/duly.v1.FleetService/ListServices": {},
    "/duly.v1.FleetService/ListQueues": _READ,
    "/duly.v1.AccessService/AddGrants": {"operator": "OK"},
    "/duly.v1.AccessService/RemoveGrants": {"operator": "OK"},
    "/duly.v1.AccessService/ListGrants": {},
    "/duly.v1.AccessService/CreateToken": {},
    "/duly.v1.AccessService/RevokeTokens": {},
    "/duly.v1.AccessService/ListTokens": {},
    "/duly.v1.AccessService/ListAuditEvents": {},
    "/duly.v1.AccessService/GetAccess": _SOMEBODY,
    # the authority is the token, which nobody can guess
    "/duly.v1.FrontendService/CompleteTasks": dict.fromkeys(_SOMEBODY, "TOKEN_NOT_CURRENT"),
    "/duly.v1.HscService/ClaimTask": _RUN,
    "/duly.v1.HscService/ClaimWork": _RUN,
    "/duly.v1.HscService/Heartbeat": _RUN,
    "/duly.v1.HscService/SetResults": _RUN,
    "/duly.v1.HscService/Release": _RUN,
    "/duly.v1.HscService/Work": _RUN,
}
"""What each role gets; roles that are left out: PERMISSION_DENIED."""

_WITHOUT_A_THING = {
    path for path, request in REQUESTS.items() if request(unknown("a")) == request(unknown("b"))
}


def headers(principal: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token(principal)}")] if principal else []


def token(principal: str) -> str:
    return f"duly_{principal}_secret"


@pytest.fixture
async def store_with_roles(store, monkeypatch):
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    for principal in (*ROLES, MAKER):
        digest = hashlib.sha256(token(principal).encode()).digest()
        await access.add_token(store, digest, principal, principal)
    grants = [Grant(role, Role(role), "mail.*") for role in ROLES if role != "nobody"]
    grants += [Grant(MAKER, role, "*") for role in (Role.OWNER, Role.OPERATOR)]
    await access.add_grants(store, grants)
    return store


@pytest.fixture
async def channels(store_with_roles, attachment_folder):
    async with AsyncExitStack() as stack:
        authorizer = Authorizer(AccessCache(store_with_roles))
        attachments = AttachmentSettings(store="folder", folder=str(attachment_folder))
        served = serve_frontend(store_with_roles, authorizer=authorizer, attachments=attachments)
        frontend = await stack.enter_async_context(served)
        hsc = await stack.enter_async_context(serve_hsc(store_with_roles, authorizer=authorizer))
        yield {False: frontend.channel, True: hsc.channel}


@pytest.fixture
async def call(channels):
    async def _call(path: str, thing: Thing, principal: str) -> Answer:
        return await make(channels["HscService" in path], path, thing, headers(principal))

    return _call


@pytest.fixture
async def make_thing(channels, call):
    async def _make_thing(name: str, scheduler: str = MAKER) -> Thing:
        new = unknown(name)
        registered = await call("/duly.v1.RegistryService/RegisterLambdas", new, MAKER)
        assert registered.outcome == "OK", registered
        frontend = frontend_pb2_grpc.FrontendServiceStub(channels[False])
        graphs = graphs_pb2_grpc.GraphServiceStub(channels[False])
        request = frontend_pb2.ScheduleRequest(
            tasks=[
                task(new, task_id=new.task_id),
                task(new, session={"key": new.session}, idempotency_key=new.session),
            ]
        )
        scheduled = await frontend.Schedule(request, metadata=headers(scheduler))
        assert all(result.created for result in scheduled.results), scheduled
        graph = graphs_pb2.ScheduleGraphRequest(
            graph_id=new.graph_id, name=new.definition, nodes=[{"label": "a", "task": task(new)}]
        )
        assert (await graphs.ScheduleGraph(graph, metadata=headers(scheduler))).created
        for path in ("TimeTableService/PutTimeTables", "GraphService/PutGraphDefinition"):
            answer = await call(f"/duly.v1.{path}", new, MAKER)
            assert answer.outcome == "OK", answer
        return new

    return _make_thing


async def state_of(store) -> dict[str, str]:
    """A digest of each table, but for the log of calls."""
    async with store.connection() as connection:
        cursor = await connection.execute(
            "select relname from pg_class join pg_namespace on pg_namespace.oid = relnamespace "
            "where nspname = current_schema() and relkind in ('r', 'p') and not relispartition and relname <> 'audit_event'"
        )
        names = [row[0] for row in await cursor.fetchall()]
        state = {}
        for name in names:
            cursor = await connection.execute(
                f"select md5(string_agg(whole::text, ',' order by whole::text)) from {name} as whole".encode()  # noqa: S608
            )
            row = await cursor.fetchone()
            state[name] = row[0] if row else ""
    return state


def test_each_rpc_is_in_the_table():
    assert set(EXPECTED) == set(REQUESTS) == set(METHODS)
    assert set(EXPECTED) == (set(NEEDS) | KNOWN_CALLERS) - _BY_CONTROLLERS


@pytest.mark.parametrize("service", sorted({path.rpartition("/")[0] for path in EXPECTED}))
async def test_each_role_gets_what_the_table_says(service, call, make_thing):
    expected = {path: roles for path, roles in EXPECTED.items() if path.rpartition("/")[0] == service}
    untouched = await make_thing(OURS)

    got = {
        path: {role: await _outcome(role, path, call, make_thing, untouched) for role in ROLES}
        for path in expected
    }

    assert got == {path: dict.fromkeys(ROLES, DENIED) | dict(roles) for path, roles in expected.items()}


async def _outcome(role, path, call, make_thing, untouched):
    """What a call gets: about something of its own if it may change that."""
    if role in EXPECTED[path]:
        untouched = await make_thing(OURS, scheduler="client" if role == "client" else MAKER)
    return (await call(path, untouched, role)).outcome


@pytest.mark.long  # each RPC once more; the table above has who may call it
@pytest.mark.parametrize("path", sorted(EXPECTED))
async def test_what_is_not_the_callers_is_answered_as_what_does_not_exist_and_stays_as_it_is(
    path, call, make_thing, store
):
    theirs, ghost = await make_thing(THEIRS), unknown(GHOST)
    before = await state_of(store)
    for role in ("", *ROLES):
        answer = await call(path, theirs, role)
        if not role:
            assert answer.outcome == "UNAUTHENTICATED", answer
        assert PAYLOAD.decode() not in answer.text, (role, answer)
        if path in _WITHOUT_A_THING:
            assert theirs.hide_names(answer.text) == answer.text, (role, answer)
            continue
        asked_for_nothing = await call(path, ghost, role)
        assert theirs.hide_names(answer.text) == ghost.hide_names(asked_for_nothing.text), role
        if path not in _OF_CLAIMS | _FINDS_NOTHING:
            assert answer.outcome != "OK", (role, answer)
    if path not in _WITHOUT_A_THING:
        assert await state_of(store) == before


_OF_CLAIMS = {f"/duly.v1.HscService/{name}" for name in ("Heartbeat", "SetResults", "Release")}
"""Served by the token of a claim, which nobody guesses."""
_FINDS_NOTHING = {"/duly.v1.InspectionService/Search"}
"""An answer without a hit is no refusal."""


@pytest.mark.parametrize(
    "path",
    [
        f"/duly.v1.{name}"
        for name in (
            "FrontendService/GetTask",
            "ExplainService/ExplainTask",
            "FrontendService/WaitTask",
            "FrontendService/CancelTask",
            "FrontendService/UpdateTask",
            "GraphService/GetGraph",
            "GraphService/WaitGraph",
            "GraphService/CancelGraph",
            "SessionService/GetSession",
        )
    ],
)
async def test_a_client_reaches_only_what_it_scheduled(path, call, make_thing, store):
    another = await make_thing(OURS)
    ghost = unknown(OURS)
    before = await state_of(store)
    answer, of_nothing = await call(path, another, "client"), await call(path, ghost, "client")
    assert answer.outcome == "NOT_FOUND"
    assert another.hide_names(answer.text) == ghost.hide_names(of_nothing.text)
    assert await state_of(store) == before


async def test_a_client_lists_and_cancels_only_what_it_scheduled(channels, make_thing):
    await make_thing(OURS)
    own = await make_thing(OURS, scheduler="client")
    stub = frontend_pb2_grpc.FrontendServiceStub(channels[False])
    for filters in ({}, {"lambda": OURS}, {"statuses": [task_pb2.TASK_STATUS_NEW]}):
        listed = await stub.ListTasks(frontend_pb2.ListTasksRequest(**filters), metadata=headers("client"))
        assert len(listed.tasks) == 3
        assert own.task_id in {each.task_id for each in listed.tasks}
        assert {each.scheduled_by for each in listed.tasks} == {"client"}
    graphs = graphs_pb2_grpc.GraphServiceStub(channels[False])
    seen = await graphs.ListGraphs(graphs_pb2.ListGraphsRequest(), metadata=headers("client"))
    assert [each.graph_id for each in seen.graphs] == [own.graph_id]
    cancelled = await stub.CancelTasks(frontend_pb2.CancelTasksRequest(), metadata=headers("client"))
    assert cancelled.count == 3


async def test_an_owner_lists_and_cancels_all_tasks_of_its_lambdas_and_no_others(channels, make_thing):
    await make_thing(THEIRS)
    await make_thing(OURS)
    await make_thing(OURS, scheduler="client")
    await make_thing("mailer")
    stub = frontend_pb2_grpc.FrontendServiceStub(channels[False])
    listed = await stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers("owner"))
    assert len(listed.tasks) == 6
    assert {getattr(each, "lambda") for each in listed.tasks} == {OURS}
    cancelled = await stub.CancelTasks(frontend_pb2.CancelTasksRequest(), metadata=headers("owner"))
    assert cancelled.count == 6
    purged = await stub.PurgeTasks(frontend_pb2.PurgeTasksRequest(), metadata=headers("owner"))
    assert purged.count == 6
    redriven = await stub.RedriveTasks(frontend_pb2.RedriveTasksRequest(), metadata=headers("owner"))
    assert redriven.count == 0
    left = await stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers(MAKER))
    assert {getattr(each, "lambda") for each in left.tasks} == {THEIRS, "mailer"}


async def test_one_refused_task_leaves_the_others_of_its_call_alone(channels, make_thing):
    theirs, ours = await make_thing(THEIRS), await make_thing(OURS)
    stub = frontend_pb2_grpc.FrontendServiceStub(channels[False])
    request = frontend_pb2.ScheduleRequest(tasks=[task(theirs), task(ours), task(unknown(GHOST))])
    first, second, third = (await stub.Schedule(request, metadata=headers("client"))).results
    assert second.created
    assert first.error.code == third.error.code == task_pb2.ERROR_CODE_PERMISSION_DENIED
    assert first.error.message.replace(THEIRS, "") == third.error.message.replace(GHOST, "")


async def test_an_auditor_sees_tasks_without_what_clients_and_callbacks_wrote(channels, make_thing):
    ours = await make_thing(OURS)
    stub = frontend_pb2_grpc.FrontendServiceStub(channels[False])
    request = frontend_pb2.GetTaskRequest(task_ids=[ours.task_id])
    (seen,) = (await stub.GetTask(request, metadata=headers("auditor"))).results
    assert (seen.task.payload, seen.task.payload_withheld, seen.task.scheduled_by) == (b"", True, MAKER)
    (whole,) = (await stub.GetTask(request, metadata=headers("owner"))).results
    assert (whole.task.payload, whole.task.payload_withheld) == (PAYLOAD, False)
