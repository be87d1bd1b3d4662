"""Every RPC that changes a thing by its name sets only the fields that the call names, and removes what it names unset.

The cases are held against the descriptors: a new RPC, or a new field, without a case fails.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

import duly
from duly_core.gates.rules import Gate, GateScope, Kind
from duly_core.limits.store import ResourceLimit
from duly_core.rpc.requests.field_masks import changed_fields, is_set
from duly_core.rpc.requests.problem import Problem
from duly_frontend.gates.checks import read_gate
from duly_wire.v1 import (
    access_pb2,
    controller_pb2,
    explain_pb2,
    fleet_pb2,
    frontend_pb2,
    gates_pb2,
    gates_pb2_grpc,
    graphs_pb2,
    hsc_pb2,
    inspection_pb2,
    limits_pb2,
    limits_pb2_grpc,
    objectives_pb2,
    objectives_pb2_grpc,
    pools_pb2,
    pools_pb2_grpc,
    registry_pb2,
    sessions_pb2,
    settings_pb2,
    task_pb2,
    time_tables_pb2,
)
from tests.fixtures import whole
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

OTHER = "report.make"
LATER = Timestamp(seconds=4_000_000_000)
LATEST = Timestamp(seconds=4_100_000_000)
SOON = Timestamp(seconds=int(time.time()) + 86_400)


def duration(seconds):
    return Duration(seconds=seconds)


def of(kind, fields):
    """A message with these paths: `lambda` and `rate.units` are no keywords."""
    message = kind()
    for path, value in fields.items():
        *outer, last = path.split(".")
        inner = message
        for name in outer:
            inner = getattr(inner, name)
        if isinstance(value, Message):
            getattr(inner, last).CopyFrom(value)
        elif isinstance(value, tuple):
            getattr(inner, last).extend(value)
        elif isinstance(value, dict):
            getattr(inner, last).update(value)
        else:
            setattr(inner, last, value)
    return message


@dataclass(frozen=True)
class Thing:
    """A kind of thing that is changed by its name."""

    method: str
    """The RPC with which it is changed."""
    kind: Callable[[], Message]
    key: dict[str, object]
    whole: dict[str, object]
    """A value for each field that can be set, all of which fit together."""
    others: dict[str, object]
    """Another value for each field, that fits the rest of `whole`."""
    with_others: dict[str, dict[str, object]]
    """What must be changed with a field, for both must fit."""
    cleared: dict[str, tuple[str, ...]]
    """What must be removed with a field."""
    defaults: dict[str, object]
    """What a field is once it is removed; not here: unset."""
    never_unset: frozenset[str]
    """To remove these is refused."""
    not_settable: frozenset[str]
    """The name, and what only answers have."""


GATE = Thing(
    method="GateService/PutGate",
    kind=gates_pb2.Gate,
    key={"name": "night", "owner": "ann"},
    whole={
        "kind": gates_pb2.GATE_KIND_DELAY,
        "scope.lambda": LAMBDA,
        "scope.collection": "marketing",
        "scope.priority": task_pb2.PRIORITY_LOW,
        "scope.session": "vlan-7",
        "delay": duration(60),
        "reason": "the provider is down",
        "expires_at": LATER,
    },
    others={
        "kind": gates_pb2.GATE_KIND_DROP,
        "scope.lambda": "report.*",
        "scope.collection": "sales",
        "scope.priority": task_pb2.PRIORITY_HIGH,
        "scope.session": "vlan-8",
        "delay": duration(90),
        "reason": "the provider is back",
        "expires_at": LATEST,
    },
    with_others={"kind": {"delay": None}},
    cleared={},
    defaults={},
    never_unset=frozenset({"kind", "scope.lambda", "delay"}),
    not_settable=frozenset({"name", "owner", "created_at", "parked", "cells"}),
)
BREAKER = Thing(
    method="GateService/PutBreaker",
    kind=gates_pb2.Breaker,
    key={"lambda": LAMBDA, "owner": "ann"},
    whole={
        "failure_rate": 0.25,
        "minimum": 5,
        "window": duration(120),
        "pause": duration(90),
        "probes": 7,
        "reason": "page the shop team",
    },
    others={
        "failure_rate": 0.75,
        "minimum": 6,
        "window": duration(180),
        "pause": duration(60),
        "probes": 8,
        "reason": "page somebody",
    },
    with_others={},
    cleared={},
    defaults={"minimum": 20, "window": duration(60), "pause": duration(30), "probes": 3},
    never_unset=frozenset({"failure_rate"}),
    not_settable=frozenset(
        {"lambda", "owner", "changed_at", "state", "state_since", "ended", "failed", "cell"}
    ),
)
OBJECTIVE = Thing(
    method="ObjectiveService/PutObjective",
    kind=objectives_pb2.Objective,
    key={"lambda": LAMBDA},
    whole={"share": 0.95, "start_within": duration(60)},
    others={"share": 0.5, "start_within": duration(120)},
    with_others={},
    cleared={},
    defaults={},
    never_unset=frozenset({"share", "start_within"}),
    not_settable=frozenset({"lambda", "changed_at", "cell"}),
)
RESOURCE = Thing(
    method="LimitService/PutResource",
    kind=limits_pb2.ResourceLimit,
    key={"name": "database"},
    whole={
        "capacity": 20,
        "per_key": True,
        "note": "20 connections",
        "rate.units": 5,
        "rate.period": duration(1),
        "rate.burst": 10,
    },
    others={
        "capacity": 0,
        "per_key": False,
        "note": "40 connections",
        "rate.units": 6,
        "rate.period": duration(60),
        "rate.burst": 11,
    },
    with_others={},
    cleared={"rate.units": ("rate.period", "rate.burst")},
    defaults={"rate.burst": 1},
    never_unset=frozenset({"rate.period"}),
    not_settable=frozenset({"name"}),
)
TIME_TABLE = Thing(
    method="TimeTableService/PutTimeTables",
    kind=time_tables_pb2.TimeTable,
    key={"name": "nightly"},
    whole={
        "lambda": LAMBDA,
        "payload": b'{"of": "sales"}',
        "payload_encoding": task_pb2.ENCODING_JSON,
        "priority": task_pb2.PRIORITY_HIGH,
        "collection": "reports",
        "cron": "0 2 * * *",
        "zone": "Europe/Berlin",
        "catch_up": time_tables_pb2.CATCH_UP_ALL,
        "catch_up_window": duration(7200),
        "overlap": time_tables_pb2.OVERLAP_SKIP,
        "jitter": duration(30),
        "resources": (task_pb2.ResourceNeed(name="reports", weight=2),),
        "session.key": "reports",
        "session.order": task_pb2.SESSION_ORDER_DUE,
        "session.on_failure": task_pb2.SESSION_POLICY_BLOCK,
        "calendar": "office",
        "on_closed": time_tables_pb2.ON_CLOSED_NEXT,
        "business_hours": True,
        "working_day": -1,
        "fair_key": "ada",
        "attributes": (task_pb2.Attribute(name="region", text="eu"),),
    },
    others={
        "lambda": OTHER,
        "payload": b'{"of": "stock"}',
        "payload_encoding": task_pb2.ENCODING_RAW,
        "priority": task_pb2.PRIORITY_LOW,
        "collection": "sums",
        "cron": "0 3 * * *",
        "every": duration(3600),
        "offset": duration(60),
        "zone": "Europe/Paris",
        "catch_up": time_tables_pb2.CATCH_UP_ONE,
        "catch_up_window": duration(3600),
        "overlap": time_tables_pb2.OVERLAP_BUFFER_ONE,
        "jitter": duration(40),
        "resources": (task_pb2.ResourceNeed(name="sums", weight=1),),
        "session.key": "sums",
        "session.order": task_pb2.SESSION_ORDER_SCHEDULED,
        "session.on_failure": task_pb2.SESSION_POLICY_FAIL_REST,
        "calendar": "works",
        "on_closed": time_tables_pb2.ON_CLOSED_PREVIOUS,
        "business_hours": False,
        "working_day": 2,
        "fair_key": "bob",
        "attributes": (task_pb2.Attribute(name="order", number=17),),
    },
    with_others={
        "payload_encoding": {"payload": b"\x00"},
        "every": {"zone": None, "cron": None},
        "offset": {"every": duration(3600), "zone": None, "cron": None},
        "catch_up": {"catch_up_window": None},
        "session.order": {"session.key": "reports"},
        "session.on_failure": {"session.key": "reports"},
    },
    cleared={
        "payload": ("payload_encoding",),
        "payload_encoding": ("payload",),
        "catch_up": ("catch_up_window",),
        "session.key": ("session.order", "session.on_failure"),
        "calendar": ("on_closed", "business_hours", "working_day"),
    },
    defaults={
        "payload_encoding": task_pb2.ENCODING_JSON,
        "priority": task_pb2.PRIORITY_NORMAL,
        "zone": "UTC",
        "catch_up": time_tables_pb2.CATCH_UP_ONE,
        "catch_up_window": duration(86400),
        "overlap": time_tables_pb2.OVERLAP_ALLOW,
        "session.order": task_pb2.SESSION_ORDER_SCHEDULED,
        "session.on_failure": task_pb2.SESSION_POLICY_SKIP,
        "on_closed": time_tables_pb2.ON_CLOSED_SKIP,
    },
    never_unset=frozenset({"lambda", "cron", "every"}),
    not_settable=frozenset({"name"}),
)
CALENDAR = Thing(
    method="TimeTableService/PutCalendars",
    kind=time_tables_pb2.Calendar,
    key={"name": "bank"},
    whole={
        "holidays": ("DE", "XNYS"),
        "weekend": ("SUN",),
        "closed": ("2026-12-24",),
        "open": ("2026-12-26",),
        "hours": ("MON-FRI 09:00-17:00",),
        "note": "the counter",
    },
    others={
        "holidays": ("FR",),
        "weekend": ("NONE",),
        "closed": ("2026-12-31",),
        "open": ("2026-12-27",),
        "hours": ("MON-SAT 09:00-13:00",),
        "note": "the vault",
    },
    with_others={},
    cleared={},
    defaults={"weekend": ("SAT", "SUN")},
    never_unset=frozenset(),
    not_settable=frozenset({"name"}),
)
POOL = Thing(
    method="PoolService/PutPools",
    kind=pools_pb2.Pool,
    key={"name": "mail"},
    whole={
        "lambdas": (LAMBDA,),
        "labels": ("gpu",),
        "minimum": 2,
        "maximum": 20,
        "slots": 8,
        "target_age": duration(10),
        "idle_time": duration(120),
        "budget": duration(172_800),
        "driver": "kubernetes",
        "driver_settings": {"deployment": "mail"},
        "note": "the mail team",
    },
    others={
        "lambdas": (OTHER, "mail.*"),
        "labels": ("region=eu",),
        "minimum": 3,
        "maximum": 30,
        "slots": 16,
        "target_age": duration(20),
        "idle_time": duration(240),
        "budget": duration(86_400),
        "driver": "local",
        "driver_settings": {"deployment": "post"},
        "note": "the post team",
    },
    with_others={},
    cleared={},
    defaults={"minimum": 0, "slots": 1, "target_age": duration(30), "idle_time": duration(60)},
    never_unset=frozenset({"lambdas", "maximum", "driver"}),
    not_settable=frozenset({"name"}),
)
THINGS = (GATE, BREAKER, OBJECTIVE, RESOURCE, TIME_TABLE, CALENDAR, POOL)
NEEDED = {"rate.units", "catch_up", "calendar"}
"""Not removed alone from `whole`, for what depends on them."""

OTHERWISE = {
    "FrontendService/UpdateTask": "below: its fields cannot be removed, what is set is changed",
    "RegistryService/UpdateLambda": "below: its fields cannot be removed, what is set is changed",
    "SettingsService/SetSettings": "a setting is one value; ResetSettings removes it",
    "SettingsService/ResetSettings": "names what it removes",
    "TimeTableService/PauseTimeTables": "below: its one field is the note",
    "TimeTableService/ResumeTimeTables": "has no field",
    "GraphService/PutGraphDefinition": "makes another version, the former ones stay",
    "RegistryService/RegisterLambdas": "declares the whole by design: a version of an application says what it is",
    "RegistryService/RestoreLambda": "has no field",
    "RegistryService/SetFairWeights": "a weight is one value of a key; what is removed is named",
    "AccessService/AddGrants": "a grant has nothing beside its name",
    "AccessService/CreateToken": "a token cannot be changed",
}
"""RPCs that change something, and why no field of theirs can be erased by a call that does not name it."""
MODULES = (
    access_pb2, controller_pb2, explain_pb2, fleet_pb2, frontend_pb2, gates_pb2, graphs_pb2, hsc_pb2, inspection_pb2,
    limits_pb2, objectives_pb2, pools_pb2, registry_pb2, sessions_pb2, settings_pb2, time_tables_pb2,
)  # fmt: skip
CHANGING = (
    "Put",
    "Set",
    "Reset",
    "Update",
    "Change",
    "Patch",
    "Add",
    "Create",
    "Register",
    "Restore",
    "Pause",
    "Resume",
)
OF_HOSTS = {"HscService/SetResults"}
READS_OR_ENDS = (
    "Get", "Find", "Search", "List", "Wait", "Explain", "Reveal", "Schedule", "Cancel", "Redrive", "Purge", "Delete", "Remove", "Revoke",
    "Unblock", "Backfill", "Report", "Claim", "Heartbeat", "Release", "Work", "Attach", "Next", "Complete",
)  # fmt: skip


@pytest.fixture
async def apply(frontend, task_states):  # noqa: PLR0915 (one place knows how each thing is put)
    """Put a thing, and return how it is now and which fields the answer says were changed."""
    for name in (LAMBDA, OTHER):
        await task_states.register(name)
    for name in ("reports", "sums"):
        await whole.put_resource(task_states.store, ResourceLimit(name, 1))
    calendars = [
        time_tables_pb2.NewCalendar(calendar=time_tables_pb2.Calendar(name=name, weekend=["SUN"]))
        for name in ("office", "works")
    ]
    await frontend.time_tables.PutCalendars(time_tables_pb2.PutCalendarsRequest(calendars=calendars))
    gates = gates_pb2_grpc.GateServiceStub(frontend.channel)
    limits = limits_pb2_grpc.LimitServiceStub(frontend.channel)

    pools = pools_pb2_grpc.PoolServiceStub(frontend.channel)
    objectives = objectives_pb2_grpc.ObjectiveServiceStub(frontend.channel)

    async def read(thing):
        if thing is GATE:
            (now,) = (await gates.ListGates(gates_pb2.ListGatesRequest())).gates
            return now
        if thing is BREAKER:
            (now,) = (await gates.ListBreakers(gates_pb2.ListBreakersRequest())).breakers
            return now
        if thing is OBJECTIVE:
            (now,) = (await objectives.ListObjectives(objectives_pb2.ListObjectivesRequest())).objectives
            return now
        if thing is RESOURCE:
            found = (await limits.ListResources(limits_pb2.ListResourcesRequest())).resources[0]
            return found.limit
        if thing is POOL:
            (status,) = (await pools.ListPools(pools_pb2.ListPoolsRequest())).pools
            return status.pool
        if thing is CALENDAR:
            wanted = time_tables_pb2.GetCalendarsRequest(names=["bank"])
            (found,) = (await frontend.time_tables.GetCalendars(wanted)).results
            return found.state.calendar
        request = time_tables_pb2.GetTimeTablesRequest(names=["nightly"])
        (found,) = (await frontend.time_tables.GetTimeTables(request)).results
        return found.table.table

    async def put(thing, asked, mask):
        masked = None if mask is None else FieldMask(paths=mask)
        if thing is GATE:
            return await gates.PutGate(gates_pb2.PutGateRequest(gate=asked, update_mask=masked))
        if thing is BREAKER:
            return await gates.PutBreaker(gates_pb2.PutBreakerRequest(breaker=asked, update_mask=masked))
        if thing is OBJECTIVE:
            request = objectives_pb2.PutObjectiveRequest(objective=asked, update_mask=masked)
            return await objectives.PutObjective(request)
        if thing is RESOURCE:
            masks = {} if masked is None else {"database": masked}
            request = limits_pb2.PutResourceRequest(resources=[asked], update_masks=masks)
            (answer,) = (await limits.PutResource(request)).results
        elif thing is POOL:
            new = pools_pb2.NewPool(pool=asked, update_mask=masked)
            (answer,) = (await pools.PutPools(pools_pb2.PutPoolsRequest(pools=[new]))).results
        elif thing is CALENDAR:
            new = time_tables_pb2.NewCalendar(calendar=asked, update_mask=masked)
            request = time_tables_pb2.PutCalendarsRequest(calendars=[new])
            (answer,) = (await frontend.time_tables.PutCalendars(request)).results
        else:
            new = time_tables_pb2.NewTimeTable(table=asked, update_mask=masked)
            request = time_tables_pb2.PutTimeTablesRequest(tables=[new])
            (answer,) = (await frontend.time_tables.PutTimeTables(request)).results
        return answer

    async def apply(thing, asked, mask):
        answer = await put(thing, asked, mask)
        return await read(thing), answer

    async def why_not(thing, asked, mask):
        """The message with which it is refused."""
        if thing in (GATE, BREAKER, OBJECTIVE):
            return (await refusal(put(thing, asked, mask))).message
        answer = await put(thing, asked, mask)
        assert answer.error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT, answer
        return answer.error.message

    async def anew(thing):
        """Make it whole, as if it had never been."""
        if thing is GATE:
            await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["night"]))
        elif thing is BREAKER:
            await gates.DeleteBreakers(gates_pb2.DeleteBreakersRequest(lambdas=[LAMBDA]))
        elif thing is OBJECTIVE:
            await objectives.DeleteObjectives(objectives_pb2.DeleteObjectivesRequest(lambdas=[LAMBDA]))
        elif thing is RESOURCE:
            await limits.DeleteResource(limits_pb2.DeleteResourceRequest(names=["database"]))
        elif thing is POOL:
            await pools.DeletePools(pools_pb2.DeletePoolsRequest(names=["mail"]))
        elif thing is CALENDAR:
            request = time_tables_pb2.DeleteCalendarsRequest(names=["bank"])
            await frontend.time_tables.DeleteCalendars(request)
        else:
            request = time_tables_pb2.DeleteTimeTablesRequest(names=["nightly"])
            await frontend.time_tables.DeleteTimeTables(request)
        return await apply(thing, of(thing.kind, {**thing.key, **thing.whole}), None)

    apply.read, apply.why_not, apply.anew = read, why_not, anew
    return apply


def leaves(descriptor, prefix=""):
    """The paths of a message, into messages of ours."""
    for field in descriptor.fields:
        inner = field.message_type
        is_ours = inner is not None and inner.full_name.startswith("duly.") and not field.is_repeated
        if is_ours and not inner.GetOptions().map_entry:
            yield from leaves(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def fields_of(thing):
    return [each for each in leaves(thing.kind.DESCRIPTOR) if each not in thing.not_settable]


def expected(thing, changes):
    """The whole thing, with these fields as they are; None: as they are once removed."""
    fields = {**thing.key, **thing.whole}
    for path, value in changes.items():
        fields[path] = thing.defaults.get(path) if value is None else value
    if fields.get("every"):
        fields["cron"] = fields["zone"] = None
    if fields.get("catch_up") == time_tables_pb2.CATCH_UP_ONE:
        fields["catch_up_window"] = None
    if thing is TIME_TABLE and fields["session.key"] is None:
        fields["session.order"] = fields["session.on_failure"] = None
    if thing is TIME_TABLE and not fields["calendar"]:
        fields["on_closed"] = None
    if thing is RESOURCE and fields["rate.units"] is None:
        fields["rate.burst"] = None
    return of(thing.kind, {path: value for path, value in fields.items() if value is not None})


def differing(thing, before, after):
    return [*changed_fields(before, after, fields_of(thing)).paths]


def per_thing(skipped=lambda _thing, _field: False):
    return [
        pytest.param(thing, fields, id=thing.kind.DESCRIPTOR.name)
        for thing in THINGS
        if (fields := [each for each in fields_of(thing) if not skipped(thing, each)])
    ]


def test_every_rpc_that_changes_a_thing_by_its_name_is_in_the_table():
    methods = {
        f"{service.name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    changing = {each for each in methods if each.partition("/")[2].startswith(CHANGING)} - OF_HOSTS
    unknown = [
        each for each in methods - changing - OF_HOSTS if not each.partition("/")[2].startswith(READS_OR_ENDS)
    ]

    assert changing == {thing.method for thing in THINGS} | OTHERWISE.keys()
    assert unknown == []


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.kind.DESCRIPTOR.name)
def test_every_field_has_another_value_in_the_table(thing):
    one_of = {"cron", "every", "offset"} if thing is TIME_TABLE else set()

    assert set(thing.others) == set(fields_of(thing))
    assert set(fields_of(thing)) - set(thing.whole) <= one_of


@pytest.mark.parametrize(("thing", "fields"), per_thing())
async def test_a_call_that_names_one_field_leaves_the_others(apply, thing, fields):
    for field in fields:
        await apply.anew(thing)
        changes = {field: thing.others[field], **thing.with_others.get(field, {})}
        said = {path: value for path, value in changes.items() if value is not None}

        now, answer = await apply(thing, of(thing.kind, {**thing.key, **said}), list(changes))
        again, repeated = await apply(thing, of(thing.kind, {**thing.key, **said}), list(changes))

        assert differing(thing, expected(thing, changes), now) == [], field
        assert set(answer.changed_fields.paths) <= {*changes}
        assert field in answer.changed_fields.paths
        assert not answer.HasField("error") if "error" in answer.DESCRIPTOR.fields_by_name else True
        assert (differing(thing, now, again), [*repeated.changed_fields.paths]) == ([], []), field


@pytest.mark.parametrize(
    ("thing", "fields"), per_thing(lambda thing, field: bool(thing.with_others.get(field)))
)
async def test_without_a_mask_what_is_set_is_named(apply, thing, fields):
    for field in fields:
        await apply.anew(thing)
        asked = of(thing.kind, {**thing.key, field: thing.others[field]})

        now, _ = await apply(thing, asked, None)

        # what has no presence is named only if it is not the default
        changes = {field: thing.others[field]} if is_set(asked, field) else {}
        assert differing(thing, expected(thing, changes), now) == [], field


@pytest.mark.parametrize(
    ("thing", "fields"),
    per_thing(lambda thing, field: field in thing.never_unset or field not in thing.whole),
)
async def test_a_field_that_is_named_and_unset_is_removed_alone(apply, thing, fields):
    for field in fields:
        await apply.anew(thing)
        gone = [field, *thing.cleared.get(field, ())]

        now, answer = await apply(thing, of(thing.kind, thing.key), gone)

        assert differing(thing, expected(thing, dict.fromkeys(gone)), now) == [], field
        assert set(answer.changed_fields.paths) <= {*gone}


@pytest.mark.parametrize(
    ("thing", "fields"),
    per_thing(lambda thing, field: field not in thing.never_unset | NEEDED or field not in thing.whole),
)
async def test_what_the_rest_needs_is_not_removed_and_nothing_is_changed(apply, thing, fields):
    before, _ = await apply.anew(thing)
    for field in fields:
        assert await apply.why_not(thing, of(thing.kind, thing.key), [field])

        assert differing(thing, before, await apply.read(thing)) == [], field


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.kind.DESCRIPTOR.name)
async def test_a_mask_that_names_no_field_is_refused_and_changes_nothing(apply, thing):
    before, _ = await apply.anew(thing)
    asked = of(thing.kind, {**thing.key, **thing.others})
    fields = [each for each in thing.others if each not in ("every", "offset")]
    for path in ("nonsense", "*", "name", "", "rate.", "x" * 10_000):
        message = await apply.why_not(thing, asked, [*fields, path])

        assert "is no field that can be set: name " in message
        assert len(message) < 500
        assert differing(thing, before, await apply.read(thing)) == []


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.kind.DESCRIPTOR.name)
async def test_changes_of_two_fields_at_once_are_both_kept(apply, thing):
    await apply(thing, of(thing.kind, {**thing.key, **thing.whole}), None)
    fields = [each for each in thing.whole if each not in thing.with_others and each not in thing.cleared]
    changes = {each: thing.others[each] for each in fields}

    await asyncio.gather(
        *(
            apply(thing, of(thing.kind, {**thing.key, field: value}), [field])
            for field, value in changes.items()
        )
    )
    now, _ = await apply(thing, of(thing.kind, {**thing.key, fields[0]: changes[fields[0]]}), [fields[0]])

    assert differing(thing, expected(thing, changes), now) == []


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.kind.DESCRIPTOR.name)
async def test_what_a_new_thing_does_not_name_is_the_default(apply, thing):
    needed = {
        "PutGate": {"kind": gates_pb2.GATE_KIND_PAUSE, "scope.lambda": LAMBDA},
        "PutBreaker": {"failure_rate": 0.5},
        "PutObjective": {"share": 0.5, "start_within": duration(1)},
        "PutResource": {"capacity": 3},
        "PutTimeTables": {"lambda": LAMBDA, "cron": "@daily"},
        "PutCalendars": {"note": "new"},
        "PutPools": {"lambdas": (LAMBDA,), "maximum": 3, "driver": "local"},
    }[thing.method.partition("/")[2]]

    now, answer = await apply(thing, of(thing.kind, {**thing.key, **thing.whole, **needed}), list(needed))

    # without a rate, with CATCH_UP_ONE, without a session, without a calendar
    absent = {"rate.burst", "catch_up_window", "session.order", "session.on_failure", "on_closed"}
    defaults = {path: value for path, value in thing.defaults.items() if path not in absent}
    assert differing(thing, of(thing.kind, {**thing.key, **defaults, **needed}), now) == []
    assert answer.created


async def test_a_mask_has_a_bounded_number_of_paths(apply):
    message = await apply.why_not(GATE, of(GATE.kind, {**GATE.key, **GATE.whole}), ["reason"] * 101)

    assert message.endswith("there may be at most 100 paths, not 101")


def test_a_gate_of_a_newer_release_does_not_become_a_pause():
    before = Gate(1, "night", Kind.UNKNOWN, GateScope(LAMBDA), None, "ann", "", datetime.now(UTC), None)
    request = gates_pb2.PutGateRequest(gate=of(GATE.kind, {"name": "night", "reason": "x"}))

    with pytest.raises(Problem, match="does not know what it does"):
        read_gate(request, before, frozenset({"reason"}))


async def test_a_breaker_that_is_changed_keeps_its_state(apply, frontend, store, dsn):
    await apply(BREAKER, of(BREAKER.kind, {**BREAKER.key, **BREAKER.whole}), None)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("update breaker set state = 'half_open', probed = 7")

    now, _ = await apply(BREAKER, of(BREAKER.kind, {**BREAKER.key, "probes": 2}), ["probes"])

    assert (now.state, now.probes, now.owner) == (gates_pb2.BREAKER_STATE_HALF_OPEN, 2, "ann")


TASK_CHANGES = {
    "scheduled_at": {"scheduled_at": SOON},
    "delay": {"delay": duration(86_400)},
    "priority": {"priority": task_pb2.PRIORITY_LOW},
    "payload": {"payload": b'{"to": "bob"}'},
    "payload_encoding": {"payload": b"\x00", "payload_encoding": task_pb2.ENCODING_RAW},
}
"""By the field of a TaskUpdate: what is sent."""


def test_every_field_of_a_task_update_has_a_case():
    assert TASK_CHANGES.keys() | {"task_id"} == {*frontend_pb2.TaskUpdate.DESCRIPTOR.fields_by_name}


@pytest.mark.parametrize("field", TASK_CHANGES)
async def test_an_update_of_a_task_leaves_what_it_does_not_set(client, task_states, frontend, field):
    await task_states.register()
    expires_at = datetime.now(UTC) + timedelta(days=30)
    options = {
        "collection": "marketing",
        "priority": duly.Priority.HIGH,
        "expires_at": expires_at,
    }
    scheduled = await client.schedule(LAMBDA, {"to": "ann"}, delay=timedelta(hours=1), **options)
    before = await client.get(scheduled)
    change = TASK_CHANGES[field]

    update = frontend_pb2.TaskUpdate(task_id=scheduled.task_id, **change)
    (answer,) = (await frontend.stub.UpdateTask(frontend_pb2.UpdateTaskRequest(updates=[update]))).results

    after = await client.get(scheduled)
    seen = (
        "payload",
        "priority",
        "scheduled_at",
        "next_trigger_at",
        "expires_at",
        "collection",
        "session",
        "resources",
    )
    differ = {each for each in seen if getattr(before, each) != getattr(after, each)}
    times = {"scheduled_at", "next_trigger_at"}
    assert not answer.HasField("error"), answer
    assert differ == (times if field in ("scheduled_at", "delay") else {field.removesuffix("_encoding")})


async def test_an_update_of_a_lambda_leaves_what_it_does_not_set(client, task_states, frontend):
    declared = {"owner": "ann", "max_attempts": 7, "max_runtime": timedelta(minutes=5)}
    for version in ("1", "2"):
        await task_states.register(version=version, **declared)
    before = (await client.get_lambda(LAMBDA)).in_force

    await frontend.registry.UpdateLambda(registry_pb2.UpdateLambdaRequest(name=LAMBDA, owner="bob"))
    given = (await client.get_lambda(LAMBDA)).in_force
    await client.roll_back_lambda(LAMBDA, "1")
    rolled_back = (await client.get_lambda(LAMBDA)).in_force
    await task_states.register(f"{LAMBDA}@2", version="2", owner="bob")
    await client.ramp_lambda(LAMBDA, "2", 10, force=True)
    ramped = (await client.get_lambda(LAMBDA)).in_force
    await client.transfer_lambda(LAMBDA, "cem")
    transferred = (await client.get_lambda(LAMBDA)).in_force

    assert {*registry_pb2.UpdateLambdaRequest.DESCRIPTOR.fields_by_name} == {
        "name", "owner", "version", "expected_revision", "ramp", "ramp_without_host"
    }  # fmt: skip
    assert (before.owner, before.version) == ("ann", "2")
    assert (given.owner, given.version, given.max_runtime) == ("bob", "2", before.max_runtime)
    assert (rolled_back.owner, rolled_back.version) == ("bob", "1")
    assert (ramped.owner, ramped.version, str(ramped.ramp)) == ("bob", "1", "10% to version 2")
    assert (transferred.owner, transferred.ramp) == ("cem", ramped.ramp)


async def test_the_note_of_a_pause_stays_until_another_is_named(apply, frontend):
    await apply(TIME_TABLE, of(TIME_TABLE.kind, {**TIME_TABLE.key, **TIME_TABLE.whole}), None)
    request = partial(time_tables_pb2.PauseTimeTablesRequest, names=["nightly"])
    notes = []

    for asked in (
        request(note="the warehouse moves"),
        request(),
        request(note="not yet", update_mask=FieldMask(paths=["note"])),
        request(update_mask=FieldMask(paths=["note"])),
    ):
        (result,) = (await frontend.time_tables.PauseTimeTables(asked)).results
        notes.append(result.table.pause_note)

    refused = await refusal(
        frontend.time_tables.PauseTimeTables(request(update_mask=FieldMask(paths=["names"])))
    )
    assert notes == ["the warehouse moves", "the warehouse moves", "not yet", ""]
    assert refused.field == "update_mask"
