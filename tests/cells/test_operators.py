"""What operators own is written to all cells, or to none; what was broken off is completed by the same call."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from psycopg.conninfo import make_conninfo

from duly_core.access import store as store_access
from duly_core.access.audit_log import list_events
from duly_core.access.copies import read_access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.access.tokens import new_token
from duly_core.cells.copying import copy_operators_data, differences
from duly_core.cells.late_changes import CHANGES, catch_up, note_changes
from duly_core.cells.operators_turn import turns
from duly_core.errors import DulyError
from duly_core.gates import store as store_gates
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_frontend.cells import operators
from duly_wire.v1 import (
    access_pb2,
    access_pb2_grpc,
    frontend_pb2,
    frontend_pb2_grpc,
    gates_pb2,
    gates_pb2_grpc,
    limits_pb2,
    limits_pb2_grpc,
    pools_pb2,
    pools_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
    settings_pb2,
    settings_pb2_grpc,
    task_pb2,
    time_tables_pb2,
    time_tables_pb2_grpc,
)
from tests.fixtures.routed_cells import RoutedCells, serve_cells, serves


async def _differ(cells: RoutedCells) -> Any:
    async with (
        Store(StoreSettings(dsn=cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=cells.dsns["b"])) as second,
    ):
        return await differences(first, second)


async def _write_everything(channel: grpc.aio.Channel) -> None:
    """Write something of each kind."""
    access = access_pb2_grpc.AccessServiceStub(channel)
    grant = access_pb2.Grant(principal="ann", role=access_pb2.ROLE_OPERATOR, pattern="*")
    assert (await access.AddGrants(access_pb2.AddGrantsRequest(grants=[grant]))).added == 1
    await access.CreateToken(access_pb2.CreateTokenRequest(principal="ann"))
    gone = (await access.CreateToken(access_pb2.CreateTokenRequest(principal="bob"))).token_id
    assert (await access.RevokeTokens(access_pb2.RevokeTokensRequest(token_ids=[gone]))).revoked == [gone]
    settings = settings_pb2_grpc.SettingsServiceStub(channel)
    new = settings_pb2.NewSetting(name="store_consumer.poll_interval", value="2s")
    set_ = await settings.SetSettings(settings_pb2.SetSettingsRequest(settings=[new]))
    assert [each.setting.value for each in set_.results] == ["2s"]
    limits = limits_pb2_grpc.LimitServiceStub(channel)
    rate = limits_pb2.ResourceRate(units=5, burst=2)
    rate.period.FromTimedelta(timedelta(seconds=1))
    put = await limits.PutResource(
        limits_pb2.PutResourceRequest(
            resources=[
                {"name": "db", "capacity": 3, "note": "ours"},
                {"name": "smtp", "rate": rate},
                {"name": "lambda:b/other", "capacity": 1},
                {"name": "keys", "capacity": 2, "per_key": True},
            ]
        )
    )
    assert [each.error.message for each in put.results] == [""] * 4
    gates = gates_pb2_grpc.GateServiceStub(channel)
    gate = gates_pb2.Gate(name="deploy", kind=gates_pb2.GATE_KIND_PAUSE, scope={"lambda": "*"}, reason="now")
    request = gates_pb2.PutGateRequest(gate=gate)
    request.duration.FromTimedelta(timedelta(hours=1))
    assert (await gates.PutGate(request)).created
    pools = pools_pb2_grpc.PoolServiceStub(channel)
    pool = pools_pb2.Pool(name="gpus", lambdas=["mail.*"], maximum=3, driver="ours")
    done = await pools.PutPools(pools_pb2.PutPoolsRequest(pools=[{"pool": pool}]))
    assert [each.error.message for each in done.results] == [""]
    tables = time_tables_pb2_grpc.TimeTableServiceStub(channel)
    calendar = time_tables_pb2.Calendar(name="work", holidays=["DE"], closed=["2026-12-24"])
    calendars = await tables.PutCalendars(
        time_tables_pb2.PutCalendarsRequest(calendars=[{"calendar": calendar}])
    )
    assert [each.error.message for each in calendars.results] == [""]


async def test_all_that_operators_write_is_the_same_in_all_cells(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _write_everything(channel_of_cells)
    assert await _differ(routed_cells) == {}
    async with Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second:
        assert len(await store_access.list_tokens(second)) == 2


async def test_a_change_of_one_field_keeps_the_others_in_all_cells(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _write_everything(channel_of_cells)
    limits = limits_pb2_grpc.LimitServiceStub(channel_of_cells)
    request = limits_pb2.PutResourceRequest(
        resources=[{"name": "db", "capacity": 9}], update_masks={"db": FieldMask(paths=["capacity"])}
    )
    (result,) = (await limits.PutResource(request)).results
    assert (result.limit.capacity, result.limit.note, result.changed_fields.paths) == (
        9,
        "ours",
        ["capacity"],
    )
    assert await _differ(routed_cells) == {}


async def test_what_is_removed_is_removed_from_all_cells_and_from_the_one_that_kept_it(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _write_everything(channel_of_cells)
    limits = limits_pb2_grpc.LimitServiceStub(channel_of_cells)
    async with Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first, first.connection() as connection:
        await connection.execute(
            "delete from resource where name = 'db'"
        )  # as after a call that was broken off
    deleted = await limits.DeleteResource(limits_pb2.DeleteResourceRequest(names=["db", "smtp", "none"]))
    assert [each.error.code for each in deleted.results] == [0, 0, task_pb2.ERROR_CODE_UNKNOWN_RESOURCE]
    assert await _differ(routed_cells) == {}


async def test_what_needs_all_cells_is_refused_while_one_is_away_and_the_error_names_it_and_what_helps(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _write_everything(channel_of_cells)
    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)
    limits = limits_pb2_grpc.LimitServiceStub(channel_of_cells)
    tables = time_tables_pb2_grpc.TimeTableServiceStub(channel_of_cells)
    for call in (
        limits.DeleteResource(limits_pb2.DeleteResourceRequest(names=["db"])),
        tables.PutCalendars(time_tables_pb2.PutCalendarsRequest(calendars=[{"calendar": {"name": "new"}}])),
        tables.DeleteCalendars(time_tables_pb2.DeleteCalendarsRequest(names=["work"])),
    ):
        with pytest.raises(
            grpc.aio.AioRpcError,
            match=r"cell b does not answer.*nothing was written\. .*duly cells set b --at",
        ) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await routed_cells.lines["b"].restore()
    assert await _differ(routed_cells) == {}


async def test_tokens_and_grants_are_removed_where_cells_answer_and_the_same_call_completes_it(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    access = access_pb2_grpc.AccessServiceStub(channel_of_cells)
    grant = access_pb2.Grant(principal="ann", role=access_pb2.ROLE_OPERATOR, pattern="*")
    await access.AddGrants(access_pb2.AddGrantsRequest(grants=[grant]))
    token_id = (await access.CreateToken(access_pb2.CreateTokenRequest(principal="ann"))).token_id
    revoke = access_pb2.RevokeTokensRequest(token_ids=[token_id])
    remove = access_pb2.RemoveGrantsRequest(grants=[grant])
    await routed_cells.lines["a"].cut()  # the default one
    await serves(channel_of_cells, "a", expected=False)
    for call in (access.RevokeTokens(revoke), access.RemoveGrants(remove)):
        with pytest.raises(
            grpc.aio.AioRpcError, match=r"revoked in cell b; not in cell a: it does not answer. It follows"
        ) as told:
            await call
        assert told.value.code() is grpc.StatusCode.UNAVAILABLE
    async with Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second:
        assert [token.revoked_at is None for token in await store_access.list_tokens(second)] == [False]
        assert (await read_access(second)).grants == []
    await routed_cells.lines["a"].restore()
    await serves(channel_of_cells, "a")
    await access.RevokeTokens(revoke)
    await access.RemoveGrants(remove)
    assert await _differ(routed_cells) == {}


async def test_lists_lack_a_cell_that_is_away_and_say_so_and_what_operators_own_is_read_from_another(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _write_everything(channel_of_cells)
    await routed_cells.lines["a"].cut()  # the own cell, and the default one
    await serves(channel_of_cells, "a", expected=False)
    limits = limits_pb2_grpc.LimitServiceStub(channel_of_cells)
    call = limits.ListResources(limits_pb2.ListResourcesRequest())
    assert [each.limit.name for each in (await call).resources] == ["db", "keys", "lambda:b/other", "smtp"]
    assert dict(await call.trailing_metadata())["duly-cells-missing"] == "a"
    access = access_pb2_grpc.AccessServiceStub(channel_of_cells)
    assert len((await access.ListTokens(access_pb2.ListTokensRequest())).tokens) == 2


async def test_access_is_removed_in_all_cells_while_another_process_holds_their_turns_and_is_noted(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "_REMOVAL_WAITS", timedelta(milliseconds=20))
    access = access_pb2_grpc.AccessServiceStub(channel_of_cells)
    grant = access_pb2.Grant(principal="ann", role=access_pb2.ROLE_OPERATOR, pattern="*")
    await access.AddGrants(access_pb2.AddGrantsRequest(grants=[grant]))
    token_id = (await access.CreateToken(access_pb2.CreateTokenRequest(principal="ann"))).token_id
    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        async with turns({"a": first, "b": second}) as missed:
            assert missed == {}
            gone = await access.RevokeTokens(access_pb2.RevokeTokensRequest(token_ids=[token_id]))
            assert gone.revoked == [token_id]
            assert (await access.RemoveGrants(access_pb2.RemoveGrantsRequest(grants=[grant]))).removed == 1
            for store in (first, second):
                assert [token.revoked_at is None for token in await store_access.list_tokens(store)] == [
                    False
                ]
                assert (await read_access(store)).grants == []
            # as a copy does that read it before
            await store_access.add_grants(second, [Grant("ann", Role.OPERATOR, "*")])
        await catch_up({"a": first, "b": second})
        assert (await read_access(second)).grants == []
    assert await _differ(routed_cells) == {}


class _Cell:
    """A cell that fails when it is to be written to."""

    def __init__(self, name: str, store: Store, call: Callable[..., Any]) -> None:
        self.name = name
        self.is_serving = True
        self.reads = store
        self.call = call


async def test_a_change_that_breaks_off_says_which_cells_have_it(routed_cells: RoutedCells) -> None:
    async def call(path: str, request: Any, context: Any) -> Any:
        assert path.endswith("DeleteResource")
        return limits_pb2.DeleteResourceResponse(results=[limits_pb2.DeleteResourceResult()])

    async def fail(*_: Any) -> Any:
        raise operators.StoreUnavailableError("its Postgres stopped")

    without_schema = make_conninfo(
        routed_cells.dsns["a"], dbname="postgres"
    )  # gives no turn: the change goes on
    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
        Store(StoreSettings(dsn=without_schema)) as third,
    ):
        cells = [_Cell("a", first, call), _Cell("b", second, fail), _Cell("c", third, call)]
        with pytest.raises(
            operators.PartlyWrittenCellAwayError,
            match=r"written in cell a, c; not in cell b: its Postgres stopped\. The same call again completes it",
        ):
            await operators.write(
                "/duly.v1.LimitService/DeleteResource",
                limits_pb2.DeleteResourceRequest(names=["db"]),
                cells,
                None,
            )


async def _noted(store: Store) -> list[tuple[str, str]]:
    rows = await store.run(CHANGES["operator_changes"], {})
    return sorted((kind, name) for kind, name, _ in rows)


async def _puts(path: str, request: Any, _context: Any) -> Any:
    assert path == PUT_RESOURCE
    return limits_pb2.PutResourceResponse(results=[{"limit": each} for each in request.resources])


PUT_RESOURCE = "/duly.v1.LimitService/PutResource"
DB = limits_pb2.PutResourceRequest(resources=[{"name": "db", "capacity": 3}])


async def test_a_change_that_one_cell_refuses_is_noted_for_the_cell_that_is_away_and_the_error_names_both(
    routed_cells: RoutedCells,
) -> None:
    async def refuse(*_: Any) -> Any:
        raise DulyError("it has too many")

    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        cells = [_Cell("a", first, _puts), _Cell("b", second, refuse)]
        with pytest.raises(
            operators.PartlyWrittenError,
            match=r"written in cell a; not in cell b: it has too many; cell c is away, and gets it when it is back\. The same",
        ):
            await operators.write(PUT_RESOURCE, DB, cells, None, ["c"])
        assert await _noted(first) == [("resources", "db")]
        assert await _noted(second) == []


async def test_a_change_that_cannot_be_noted_for_a_cell_that_is_away_says_that_it_is_written_and_what_completes_it(
    routed_cells: RoutedCells,
) -> None:
    async with Store(StoreSettings(dsn=routed_cells.dsns["a"])) as store:
        async with store.connection() as connection:
            await connection.execute("alter table operator_change add check (false)")
        with pytest.raises(
            operators.PartlyWrittenCellAwayError,
            match=r"written in cell a; and not noted for cell b: a cell refuses the note, CheckViolation\. "
            r"The same call again completes it, once cell b answers",
        ):
            await operators.write(PUT_RESOURCE, DB, [_Cell("a", store, _puts)], None, ["b"])


async def test_a_cell_that_cannot_take_a_late_change_does_not_decide_the_next_one(
    routed_cells: RoutedCells,
) -> None:
    called = []
    stop = NewGate("stop", Kind.PAUSE, GateScope("*"), None, "ann", "", None)

    def calls(cell: str) -> Callable[..., Any]:
        async def call(*asked: Any) -> Any:
            called.append(cell)
            return await _puts(*asked)

        return call

    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        await store_gates.put_gate(first, "stop", lambda _: stop._replace(scope=GateScope("mail.send")))
        await store_gates.put_gate(second, "stop", lambda _: stop)
        await note_changes([second], [("gates", "stop")])
        cells = [_Cell("a", first, calls("a")), _Cell("b", second, calls("b"))]
        await operators.write(PUT_RESOURCE, DB, cells, None)
    assert called == ["b", "a"]


async def test_a_token_admits_while_the_own_cell_is_away_and_the_call_is_audited_in_its_cell(
    routed_cells: RoutedCells, tmp_path: Path
) -> None:
    token_id, token, digest = new_token()
    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        await store_access.add_token(first, digest, token_id, "ann")
        await store_access.add_grants(first, [Grant("ann", Role.OWNER, "*")])
        await copy_operators_data(first, second)
        metadata = (("authorization", f"Bearer {token}"),)
        async with serve_cells(routed_cells, tmp_path, mode="required") as channel:
            registry = registry_pb2_grpc.RegistryServiceStub(channel)
            await routed_cells.lines["a"].cut()
            await serves(channel, "a", expected=False)
            declared = registry_pb2.RegisterLambdasRequest(lambdas=[{"name": "b/other", "owner": "us"}])
            answer = await registry.RegisterLambdas(declared, metadata=metadata, timeout=20)
            assert [each.error.message for each in answer.results] == [""]
            stub = frontend_pb2_grpc.FrontendServiceStub(channel)
            task = frontend_pb2.NewTask(payload=b"1")
            setattr(task, "lambda", "b/other")
            scheduled = await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]), metadata=metadata)
            assert scheduled.results[0].created
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await registry.RegisterLambdas(declared, metadata=(("authorization", "Bearer duly_x_y"),))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        audited = await list_events(second, before=2**62, limit=9, refused=False)
    assert [(event.entry.method, event.entry.outcome) for event in audited] == [
        ("RegistryService/RegisterLambdas", "UNAUTHENTICATED"),
        ("RegistryService/RegisterLambdas", "OK"),
    ]
