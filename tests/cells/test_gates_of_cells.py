"""A gate is where the lambdas live that it holds: no other cell must answer to set, change and remove it."""

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.access import store as store_access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.access.tokens import new_token
from duly_core.cells.late_changes import CHANGES, note_changes
from duly_core.errors import StoreUnavailableError
from duly_core.gates import store as store_gates
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_frontend.cells.gates import AllUnits, delete, put
from duly_wire import missing_cells
from duly_wire.v1 import gates_pb2, gates_pb2_grpc, task_pb2
from tests.fixtures.routed_cells import RoutedCells, serve_cells, serves


def _put(name: str, pattern: str, reason: str = "", **also: Any) -> gates_pb2.PutGateRequest:
    gate = gates_pb2.Gate(name=name, kind=gates_pb2.GATE_KIND_PAUSE, scope={"lambda": pattern}, reason=reason)
    return gates_pb2.PutGateRequest(gate=gate, **also)


async def _patterns(cells: RoutedCells, cell: str) -> dict[str, str]:
    async with Store(StoreSettings(dsn=cells.dsns[cell])) as store:
        return {each.gate.name: each.gate.scope.pattern for each in await store_gates.list_gates(store)}


async def _away(cells: RoutedCells, channel: grpc.aio.Channel, cell: str) -> None:
    await cells.lines[cell].cut()
    await serves(channel, cell, expected=False)


async def _listed_of_all_cells(gates: gates_pb2_grpc.GateServiceStub) -> list[gates_pb2.Gate]:
    """Return the gates once no cell is missing: connections for lists may come back later than the cell serves."""
    async with asyncio.timeout(60):
        while True:
            call = gates.ListGates(gates_pb2.ListGatesRequest())
            listed = [*(await call).gates]
            if not missing_cells.read(await call.trailing_metadata()):
                return listed


@pytest.fixture
def gates(channel_of_cells: grpc.aio.Channel) -> gates_pb2_grpc.GateServiceStub:
    return gates_pb2_grpc.GateServiceStub(channel_of_cells)


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        ("mail.send", ["a"]),
        ("mail.*", ["a"]),
        ("other/*", ["a"]),
        ("b*", ["a"]),
        ("b/send", ["b"]),
        ("b/send@2", ["b"]),
        ("b/s*", ["b"]),
        ("*", ["a", "b"]),
    ],
)
async def test_a_gate_is_in_the_cells_of_its_lambdas(
    routed_cells: RoutedCells, gates: gates_pb2_grpc.GateServiceStub, pattern: str, where: list[str]
) -> None:
    done = await gates.PutGate(_put("stop", pattern))
    assert done.created
    assert done.gate.cells == where
    assert [cell for cell in ("a", "b") if "stop" in await _patterns(routed_cells, cell)] == where
    (listed,) = (await gates.ListGates(gates_pb2.ListGatesRequest())).gates
    assert getattr(listed.scope, "lambda") == pattern
    assert listed.cells == where
    (result,) = (await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["stop"]))).results
    assert not result.HasField("error")
    assert not await _patterns(routed_cells, "a")
    assert not await _patterns(routed_cells, "b")


@pytest.mark.parametrize(
    ("name", "hit"),
    [
        ("b/send", {"all", "of b", "version of b"}),
        ("b/send@2", {"all", "of b", "version of b"}),
        ("b/send@3", {"all", "of b"}),
        ("b/*", {"all", "of b", "version of b"}),
        ("mail.send", {"all", "of a"}),
        ("mail.*", {"all", "of a"}),
        ("other", {"all"}),
        ("*", {"all", "of a", "of b", "version of b"}),
        ("", {"all", "of a", "of b", "version of b"}),
    ],
)
async def test_gates_are_listed_that_hit_a_lambda_in_whichever_cell_it_lives(
    gates: gates_pb2_grpc.GateServiceStub, name: str, hit: set[str]
) -> None:
    patterns = {"all": "*", "of a": "mail.*", "of b": "b/s*", "version of b": "b/send@2"}
    for gate, pattern in patterns.items():
        await gates.PutGate(_put(gate.replace(" ", "-"), pattern))
    listed = await gates.ListGates(gates_pb2.ListGatesRequest(**{"lambda": name}))
    assert {gate.name.replace("-", " ") for gate in listed.gates} == hit


async def test_gates_of_a_name_that_no_lambda_can_have_are_refused(
    gates: gates_pb2_grpc.GateServiceStub,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="lambda: ") as refused:
        await gates.ListGates(gates_pb2.ListGatesRequest(**{"lambda": "no lambda"}))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("away", "living"), [("a", "b/send"), ("b", "mail.send")])
async def test_gates_of_a_cell_that_answers_are_set_changed_counted_and_removed_while_another_is_away(
    routed_cells: RoutedCells,
    channel_of_cells: grpc.aio.Channel,
    gates: gates_pb2_grpc.GateServiceStub,
    away: str,
    living: str,
) -> None:
    await _away(routed_cells, channel_of_cells, away)
    assert (await gates.PutGate(_put("stop", living))).created
    reason = gates_pb2.PutGateRequest(
        gate={"name": "stop", "reason": "it fails"}, update_mask=FieldMask(paths=["reason"])
    )
    changed = await gates.PutGate(reason)
    assert (changed.gate.reason, changed.changed_fields.paths) == ("it fails", ["reason"])
    assert (await gates.PutGate(_put("", living, dry_run=True))).hits == []
    call = gates.ListGates(gates_pb2.ListGatesRequest())
    assert [gate.name for gate in (await call).gates] == ["stop"]
    assert dict(await call.trailing_metadata())["duly-cells-missing"] == away
    done = await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["stop", "none"]))
    assert [each.error.code for each in done.results] == [0, task_pb2.ERROR_CODE_CELL_UNAVAILABLE]
    assert f"cell {away} does not answer" in done.results[1].error.message
    assert (await gates.ListGates(gates_pb2.ListGatesRequest())).gates == []


async def test_what_needs_the_cell_that_is_away_is_refused_with_its_name_and_changes_nothing(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, gates: gates_pb2_grpc.GateServiceStub
) -> None:
    await gates.PutGate(_put("there", "b/send"))
    await _away(routed_cells, channel_of_cells, "b")
    unknown = gates_pb2.PutGateRequest(gate={"name": "there", "reason": "?"})
    for call in (
        gates.PutGate(_put("stop", "b/send")),
        gates.PutGate(unknown),
        gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["there"])),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="cell b: ") as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not await _patterns(routed_cells, "a")
    assert await _patterns(routed_cells, "b") == {"there": "b/send"}


async def test_a_gate_does_not_go_to_another_cell_and_the_error_says_what_to_do(
    routed_cells: RoutedCells, gates: gates_pb2_grpc.GateServiceStub
) -> None:
    await gates.PutGate(_put("stop", "b/send"))
    await gates.PutGate(_put("all", "*"))
    for asked, said in (
        (_put("stop", "mail.send"), "'b/send' in cell b, and 'mail.send' lives in cell a"),
        (_put("stop", "*"), "'b/send' in cell b, and '*' is of all cells"),
        (_put("all", "b/send"), "'*' in all cells, and 'b/send' lives in cell b"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=f"{re.escape(said)}: use another name") as refused:
            await gates.PutGate(asked)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await _patterns(routed_cells, "a") == {"all": "*"}
    assert await _patterns(routed_cells, "b") == {"all": "*", "stop": "b/send"}
    moved = await gates.PutGate(_put("stop", "b/other"))
    assert (moved.created, moved.changed_fields.paths) == (False, ["scope.lambda"])


async def test_a_name_that_was_given_again_while_its_cell_was_away_is_two_gates_that_lists_show(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, gates: gates_pb2_grpc.GateServiceStub
) -> None:
    await gates.PutGate(_put("stop", "b/send"))
    await _away(routed_cells, channel_of_cells, "b")
    await gates.PutGate(_put("stop", "mail.send"))
    await routed_cells.lines["b"].restore()
    await serves(channel_of_cells, "b")
    listed = await _listed_of_all_cells(gates)
    assert [(gate.name, getattr(gate.scope, "lambda")) for gate in listed] == [
        ("stop", "b/send"),
        ("stop", "mail.send"),
    ]
    reason = gates_pb2.PutGateRequest(gate={"name": "stop", "reason": "?"})
    with pytest.raises(grpc.aio.AioRpcError, match=r"'mail\.send' in cell a and 'b/send' in cell b"):
        await gates.PutGate(reason)
    changed = await gates.PutGate(_put("stop", "b/send", "here"))
    assert changed.changed_fields.paths == ["reason"]
    (result,) = (await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["stop"]))).results
    assert not result.HasField("error")
    assert (await gates.ListGates(gates_pb2.ListGatesRequest())).gates == []


async def test_a_gate_without_lambdas_or_with_wrong_ones_is_refused_as_in_a_sole_store(
    gates: gates_pb2_grpc.GateServiceStub,
) -> None:
    for asked, said in (
        (gates_pb2.PutGateRequest(gate={"name": "stop", "kind": gates_pb2.GATE_KIND_DROP}), "is missing"),
        (_put("stop", "b/se nd"), r"gate\.scope\.lambda"),
        (_put("Stop!", "b/send"), r"gate\.name"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=said) as refused:
            await gates.PutGate(asked)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await gates.DeleteGates(gates_pb2.DeleteGatesRequest())
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def _noted(cells: RoutedCells, cell: str) -> list[tuple[str, str]]:
    async with Store(StoreSettings(dsn=cells.dsns[cell])) as store:
        return [(kind, name) for kind, name, _ in await store.run(CHANGES["operator_changes"], {})]


async def test_a_caller_who_may_not_remove_a_gate_on_all_lambdas_leaves_no_note_and_does_not_hear_of_it(
    routed_cells: RoutedCells, tmp_path: Path
) -> None:
    token_id, token, digest = new_token()
    stop = NewGate("stop", Kind.PAUSE, GateScope("*"), None, "ann", "", None)
    for dsn in routed_cells.dsns.values():
        async with Store(StoreSettings(dsn=dsn)) as store:
            await store_access.add_token(store, digest, token_id, "bob")
            await store_access.add_grants(store, [Grant("bob", Role.OWNER, "b/send")])
            await store_gates.put_gate(store, "stop", lambda _: stop)
    async with serve_cells(routed_cells, tmp_path, mode="required") as channel:
        await _away(routed_cells, channel, "b")
        gates = gates_pb2_grpc.GateServiceStub(channel)
        said = []
        for name in ("stop", "none"):
            asked = gates_pb2.DeleteGatesRequest(names=[name])
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await gates.DeleteGates(asked, metadata=(("authorization", f"Bearer {token}"),))
            assert missing_cells.read(refused.value.trailing_metadata(), missing_cells.LATER) == ()
            said.append((refused.value.code(), str(refused.value.details()).replace(name, "NAME")))
    assert said[0] == said[1]
    assert await _patterns(routed_cells, "a") == {"stop": "*"}
    assert await _noted(routed_cells, "a") == []


async def test_a_removal_that_cannot_be_noted_for_the_cell_that_is_away_says_where_the_gate_is_gone(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, gates: gates_pb2_grpc.GateServiceStub
) -> None:
    await gates.PutGate(_put("stop", "*"))
    async with Store(StoreSettings(dsn=routed_cells.dsns["a"])) as store, store.connection() as connection:
        await connection.execute("alter table operator_change add check (false)")
    await _away(routed_cells, channel_of_cells, "b")
    (result,) = (await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["stop"]))).results
    assert result.error.code == task_pb2.ERROR_CODE_CELL_UNAVAILABLE
    assert "removed in cell a, and not noted for cell b" in result.error.message
    assert await _patterns(routed_cells, "a") == {}
    await routed_cells.lines["b"].restore()
    await serves(channel_of_cells, "b")
    (again,) = (await gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["stop"]))).results
    assert not again.HasField("error")
    assert await _patterns(routed_cells, "b") == {}


@dataclass
class _Unit:
    """A cell that is read; what it is told is answered by the test."""

    name: str
    reads: Store
    is_serving: bool = True
    told: list[str] = field(default_factory=list)

    async def call(self, path: str, request: Any, context: Any) -> Any:
        """Note what it is told."""
        self.told.append(getattr(request.gate.scope, "lambda"))
        return gates_pb2.PutGateResponse(gate=request.gate)


async def test_a_gate_on_all_lambdas_that_is_removed_while_a_cell_is_lost_is_noted_for_it(
    routed_cells: RoutedCells,
) -> None:
    async def call_each(*_: Any) -> Any:
        removed = gates_pb2.DeleteGatesResponse(results=[gates_pb2.DeleteGateResult()])
        return {"a": removed}, {"b": StoreUnavailableError("its Postgres stopped")}

    class Context:
        def set_trailing_metadata(self, metadata: Any) -> None:
            assert missing_cells.read(metadata, missing_cells.LATER) == ("b",)

    stop = NewGate("stop", Kind.PAUSE, GateScope("*"), None, "ann", "", None)
    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        for store in (first, second):
            await store_gates.put_gate(store, "stop", lambda _: stop)
        units: Any = {"a": _Unit("a", first), "b": _Unit("b", second)}
        cells = AllUnits(routed_cells.directory, units, units.__getitem__, lambda: units["a"], call_each)
        asked = gates_pb2.DeleteGatesRequest(names=["stop"])
        (result,) = (await delete(asked, cells, Context())).results
    assert "removed in cell a, and not everywhere: its Postgres stopped" in result.error.message
    assert await _noted(routed_cells, "a") == [("gates", "stop")]
    assert await _noted(routed_cells, "b") == []


@pytest.mark.parametrize("asked", [_put("stop", "mail.send"), _put("stop", "b/send"), _put("stop", "*")])
async def test_an_old_gate_of_a_cell_that_is_just_back_does_not_stand_in_the_way_of_a_new_one(
    routed_cells: RoutedCells, asked: gates_pb2.PutGateRequest
) -> None:
    stop = NewGate("stop", Kind.PAUSE, GateScope("*"), None, "ann", "", None)
    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        await store_gates.put_gate(second, "stop", lambda _: stop)
        await note_changes([first], [("gates", "stop")])  # removed there while b was away
        units: Any = {"a": _Unit("a", first), "b": _Unit("b", second)}
        cells = AllUnits(routed_cells.directory, units, units.__getitem__, lambda: units["a"], None)
        await put(asked, cells, None)
        assert await store_gates.list_gates(second) == []
        pattern = getattr(asked.gate.scope, "lambda")
        expected = {"mail.send": ["a"], "b/send": ["b"], "*": ["a", "b"]}[pattern]
        assert [name for name, unit in units.items() if unit.told == [pattern]] == expected
