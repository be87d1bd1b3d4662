"""What operators change while a cell is away is written where cells answer, said so, and comes to the cell when it is back."""

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from structlog.testing import capture_logs

from duly_core.access import store as store_access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.cells import late_changes, operators_turn
from duly_core.cells.copying import differences, grant_name
from duly_core.cells.late_changes import CHANGES, SETTLED, catch_up, note_changes, settle
from duly_core.cells.operators_turn import turns
from duly_core.gates import store as store_gates
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.limits.changes import ResourceChange, put_resource
from duly_core.limits.store import ResourceLimit
from duly_core.live_settings import store as store_settings
from duly_core.pools import store as store_pools
from duly_core.pools.rules import Pool
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.upkeep.retention import Retention
from duly_frontend.cells import operators
from duly_frontend.cells.late_changes import LateChanges
from duly_wire import missing_cells
from duly_wire.v1 import (
    access_pb2,
    access_pb2_grpc,
    gates_pb2,
    gates_pb2_grpc,
    limits_pb2,
    limits_pb2_grpc,
    pools_pb2,
    pools_pb2_grpc,
    settings_pb2,
    settings_pb2_grpc,
)
from tests.fixtures.cells import TwoCells
from tests.fixtures.host import until
from tests.fixtures.routed_cells import RoutedCells, serves

STOP = NewGate("stop", Kind.PAUSE, GateScope("*"), None, "ann", "it fails", None)
POOL = Pool(name="gpus", lambdas=("mail.*",), maximum=3, driver="ours", driver_settings={"name": "x"})


@pytest.fixture
async def first(two_cells: TwoCells) -> AsyncIterator[Store]:
    async with Store(two_cells.settings("a")) as store:
        yield store


@pytest.fixture
async def second(two_cells: TwoCells) -> AsyncIterator[Store]:
    async with Store(two_cells.settings("b")) as store:
        yield store


async def _set(store: Store, gate: NewGate) -> None:
    assert await store_gates.put_gate(store, gate.name, lambda _: gate)
    await note_changes([store], [("gates", gate.name)])


async def _gates(store: Store) -> dict[str, tuple[str, str]]:
    return {
        each.gate.name: (each.gate.scope.pattern, each.gate.reason)
        for each in await store_gates.list_gates(store)
    }


# rounds


async def test_a_gate_that_was_set_or_removed_while_a_cell_was_away_comes_to_it_once(
    first: Store, second: Store
) -> None:
    await store_gates.put_gate(second, "old", lambda _: STOP._replace(name="old"))
    await _set(first, STOP)
    await note_changes([first], [("gates", "old")])  # removed there
    done = await catch_up({"a": first, "b": second})
    assert {cell: sorted(things) for cell, things in done.brought.items()} == {
        "b": [("gates", "old"), ("gates", "stop")]
    }
    assert await _gates(second) == {"stop": ("*", "it fails")}
    assert (await catch_up({"a": first, "b": second})).brought == {}


async def test_of_two_halves_that_did_not_see_each_other_the_newest_change_of_each_thing_holds(
    first: Store, second: Store
) -> None:
    await _set(first, STOP)
    await _set(first, STOP._replace(name="mine", reason="first"))
    await _set(second, STOP._replace(name="yours", reason="second"))
    await note_changes([second], [("gates", "stop")])  # an operator there removed it, later
    done = await catch_up({"b": second, "a": first})
    assert done.refused == {}
    expected = {"mine": ("*", "first"), "yours": ("*", "second")}
    assert await _gates(first) == await _gates(second) == expected
    assert await differences(first, second) == {}


async def test_settings_are_one_thing_so_that_values_of_two_operators_never_contradict(
    first: Store, second: Store
) -> None:
    await store_settings.put(first, {"timing.claim_timeout": "40s", "timing.heartbeat_timeout": "50s"})
    await note_changes([first], [("settings", "")])
    await store_settings.put(second, {"timing.claim_timeout": "30s"})
    await note_changes([second], [("settings", "")])
    await catch_up({"a": first, "b": second})
    assert await store_settings.values(first) == await store_settings.values(second)
    assert await store_settings.values(first) == {"timing.claim_timeout": "30s"}


async def test_tokens_and_grants_of_both_halves_are_kept_and_what_is_revoked_stays_revoked(
    first: Store, second: Store
) -> None:
    grants = [Grant("ann", Role.OPERATOR, "*"), Grant("bob", Role.OWNER, "mail.*")]
    for store in (first, second):
        await store_access.add_token(store, b"0" * 32, "zero", "ann")
        await store_access.add_grants(store, grants[:1])
    await store_access.add_token(first, b"1" * 32, "one", "ann")
    await store_access.revoke_tokens(first, ["zero"])
    await note_changes([first], [("tokens", "one"), ("tokens", "zero")])
    await store_access.add_token(second, b"2" * 32, "two", "bob")
    await note_changes([second], [("tokens", "two")])
    await store_access.add_grants(second, grants[1:])
    await store_access.remove_grants(second, grants[:1])
    await note_changes(
        [second], [("grants", grant_name(each.principal, str(each.role), each.pattern)) for each in grants]
    )
    await catch_up({"a": first, "b": second})
    for store in (first, second):
        tokens = {token.token_id: token.revoked_at is None for token in await store_access.list_tokens(store)}
        assert tokens == {"zero": False, "one": True, "two": True}
        assert await store_access.list_grants(store) == grants[1:]


async def test_a_grant_that_is_removed_in_both_cells_while_it_is_brought_does_not_come_back(
    first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = Grant("eve", Role.OPERATOR, "*")
    await store_access.add_grants(first, [grant])
    await note_changes([first], [("grants", grant_name("eve", "operator", "*"))])
    add = store_access.add_grants

    async def remove_first(*arguments: Any) -> int:
        for store in (first, second):
            await store_access.remove_grants(store, [grant])
        return await add(*arguments)

    monkeypatch.setattr(store_access, "add_grants", remove_first)
    for _ in range(2):
        await catch_up({"a": first, "b": second})
    assert await store_access.list_grants(first) == []
    assert await store_access.list_grants(second) == []


async def test_a_cell_that_cannot_take_a_change_keeps_what_it_has_says_why_and_is_asked_again(
    first: Store, second: Store
) -> None:
    own = STOP._replace(scope=GateScope("b/send"), reason="of this cell")
    assert await store_gates.put_gate(second, "stop", lambda _: own)
    await _set(first, STOP)
    await put_resource(first, ResourceChange.whole(ResourceLimit("db", 2)))
    await note_changes([first], [("resources", "db")])
    for _ in range(2):
        done = await catch_up({"a": first, "b": second})
        (said,) = done.refused["b"]
        assert "gate stop holds 'b/send' there: delete it" in said
    assert await _gates(second) == {"stop": ("b/send", "of this cell")}
    await store_gates.delete_gates(second, ["stop"])
    assert (await catch_up({"a": first, "b": second})).brought == {"b": [("gates", "stop")]}
    assert await _gates(second) == {"stop": ("*", "it fails")}
    assert await differences(first, second) == {}


async def _delete_late(store: Store, pool: str) -> None:
    await store_pools.delete_pools(store, [pool])
    await note_changes([store], [("pools", pool)])


async def _put_late(store: Store, pool: str) -> None:
    await store_pools.put_pool(store, pool, lambda _: replace(POOL, name=pool))
    await note_changes([store], [("pools", pool)])


async def _pools(store: Store) -> list[str]:
    return [each.pool.name for each in await store_pools.list_pools(store)]


async def test_of_as_many_pools_and_gates_as_there_may_be_one_is_replaced(
    first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_pools, "MOST_POOLS", 1)
    monkeypatch.setattr(store_gates, "MOST_GATES", 1)
    for store in (first, second):
        await store_pools.put_pool(store, "old", lambda _: replace(POOL, name="old"))
        await store_gates.put_gate(store, "old", lambda _: STOP._replace(name="old"))
    await _delete_late(first, "old")
    await _put_late(first, "new")
    await store_gates.delete_gates(first, ["old"])
    await note_changes([first], [("gates", "old")])
    await _set(first, STOP)
    done = await catch_up({"a": first, "b": second})
    assert done.refused == {}
    assert await _pools(second) == ["new"]
    assert await _gates(second) == {"stop": ("*", "it fails")}


async def test_what_finds_no_room_or_fails_is_named_and_no_other_change_waits_for_it(
    first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_pools, "MOST_POOLS", 1)
    monkeypatch.setattr(store_gates, "MOST_GATES", 1)
    await store_pools.put_pool(second, "of-b", lambda _: replace(POOL, name="of-b"))
    await store_gates.put_gate(second, "of-b", lambda _: STOP._replace(name="of-b"))
    await _put_late(first, "new")
    await _set(first, STOP)
    await put_resource(first, ResourceChange.whole(ResourceLimit("db", 2)))
    await note_changes([first], [("resources", "db")])
    await store_settings.put(first, {"timing.claim_timeout": "40s"})
    await note_changes([first], [("settings", "")])
    async with second.connection() as connection:
        await connection.execute(
            "create function refuse() returns trigger language plpgsql as $$ begin raise 'not here'; end $$"
        )
        await connection.execute(
            "create trigger refuse before insert on resource for each row execute function refuse()"
        )
    done = await catch_up({"a": first, "b": second})
    assert done.refused["b"] == (
        "pool new has no room: there are as many pools as there may be",
        "gate stop has no room: there are as many gates as there may be",
        "resources: RaiseException: not here",
    )
    assert done.left == {"b": [("pools", "new"), ("gates", "stop"), ("resources", "db")]}
    assert done.brought == {"b": [("settings", "")]}


async def test_what_another_frontend_changes_during_a_round_is_not_overwritten(
    first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _put_late(first, "new")
    await _set(first, STOP)
    copy_some = late_changes.copy_some

    async def change_meanwhile(source: Store, target: Store, kind: str, names: Collection[str]) -> Any:
        if kind == "pools":
            await _set(second, STOP._replace(reason="newer"))
        return await copy_some(source, target, kind, names)

    monkeypatch.setattr(late_changes, "copy_some", change_meanwhile)
    done = await catch_up({"a": first, "b": second})
    assert (done.is_whole, done.left) == (False, {"b": [("gates", "stop")]})
    await catch_up({"a": first, "b": second})
    assert await _gates(first) == await _gates(second) == {"stop": ("*", "newer")}


class _Cell:
    """A cell as a Frontend sees it that answers and writes gates."""

    def __init__(
        self, name: str, store: Store, written: asyncio.Event, goes_on: asyncio.Event | None
    ) -> None:
        self.name = name
        self.is_serving = True
        self.reads = store
        self._written = written
        self._goes_on = goes_on

    async def call(self, path: str, request: Any, context: Any) -> Any:
        """Write a gate; `goes_on` holds it up."""
        if self._goes_on is not None:
            await self._goes_on.wait()
        gate = STOP._replace(reason=request.gate.reason)
        assert await store_gates.put_gate(self.reads, gate.name, lambda _: gate)
        self._written.set()
        return gates_pb2.PutGateResponse(gate=request.gate)


class _Context:
    def set_trailing_metadata(self, _metadata: Any) -> None:
        """Take what a call says besides its answer."""


async def _is_waiting(store: Store) -> bool:
    async with store.connection() as connection:
        cursor = await connection.execute(
            "select true from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return await cursor.fetchone() is not None


@pytest.mark.parametrize(
    ("sees", "source", "target"),
    [
        (("b",), "a", "b"),  # it sees cell a as away, so the change is noted in b
        (("a", "b"), "b", "a"),  # it sees both, writes to a first, and notes nothing
    ],
)
async def test_a_change_by_another_frontend_in_the_midst_of_a_copy_comes_after_it_and_holds(
    first: Store,
    second: Store,
    monkeypatch: pytest.MonkeyPatch,
    sees: tuple[str, ...],
    source: str,
    target: str,
) -> None:
    stores = {"a": first, "b": second}
    await _set(stores[source], STOP._replace(reason="old"))
    written, copied = asyncio.Event(), asyncio.Event()
    cells = [_Cell(name, stores[name], written, None if name == target else copied) for name in sees]
    put = gates_pb2.PutGateRequest(gate={"name": "stop", "kind": gates_pb2.GATE_KIND_PAUSE, "reason": "new"})
    away = [name for name in stores if name not in sees]
    changing: list[asyncio.Task[Any]] = []
    copy_some = late_changes.copy_some

    async def change_meanwhile(*arguments: Any) -> Any:
        if changing:  # the other Frontend's own look
            return await copy_some(*arguments)
        # between the second look at the notes and the copy
        writing = operators.write("/duly.v1.GateService/PutGate", put, cells, _Context(), away)
        changing.append(asyncio.ensure_future(writing))
        async with asyncio.timeout(10):
            while not written.is_set() and not await _is_waiting(stores[target]):
                pass
        refused = await copy_some(*arguments)
        copied.set()
        return refused

    monkeypatch.setattr(late_changes, "copy_some", change_meanwhile)
    await catch_up(stores)
    await changing[0]
    await catch_up(stores)
    assert await _gates(first) == await _gates(second) == {"stop": ("*", "new")}


async def test_who_cannot_have_the_turn_in_a_cell_in_time_leaves_its_changes_to_the_next_round(
    first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators_turn, "_WAIT_MS", 20)
    await _set(first, STOP)
    async with turns({"b": second}) as missed:
        assert missed == {}
        done = await catch_up({"a": first, "b": second})
        assert (done.brought, done.is_whole) == ({}, False)
        with pytest.raises(
            operators_turn.TurnTakenError, match=r"cell b: another process .*nothing was written"
        ):
            await operators.write(
                "/duly.v1.GateService/PutGate", None, [_Cell("b", second, asyncio.Event(), None)], None, ["a"]
            )
    assert (await catch_up({"a": first, "b": second})).brought == {"b": [("gates", "stop")]}


async def test_a_frontend_takes_one_turn_at_a_time_however_many_calls_change_something(
    first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taking, most = operators_turn._take, 0, 0

    async def count(*arguments: Any) -> Any:
        nonlocal taking, most
        taking += 1
        most = max(most, taking)
        try:
            return await take(*arguments)
        finally:
            taking -= 1

    monkeypatch.setattr(operators_turn, "_take", count)
    written = asyncio.Event()
    cells = [_Cell(name, store, written, None) for name, store in (("a", first), ("b", second))]
    puts = [
        gates_pb2.PutGateRequest(
            gate={"name": "stop", "kind": gates_pb2.GATE_KIND_PAUSE, "reason": str(place)}
        )
        for place in range(5)
    ]
    await asyncio.gather(
        *(operators.write("/duly.v1.GateService/PutGate", put, cells, _Context()) for put in puts)
    )
    assert most == 1
    assert await _gates(first) == await _gates(second)


async def test_a_process_that_stands_still_in_its_turn_loses_it_and_says_so(
    second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = operators_turn._LONGEST_MS
    monkeypatch.setattr(operators_turn, "_LONGEST_MS", 100)
    with capture_logs() as lines:
        async with turns({"b": second}) as missed:
            assert missed == {}
            monkeypatch.setattr(operators_turn, "_LONGEST_MS", usual)
            async with turns({"b": second}) as missed_by_another:
                assert missed_by_another == {}
    assert [line["event"] for line in lines] == ["turn to change what operators own was lost before its end"]


# notes that can never be needed any more


async def _all_notes(store: Store) -> set[tuple[str, str]]:
    return {(kind, name) for kind, name, _ in await store.run(CHANGES["operator_changes"], {})}


async def _tidy(store: Store) -> None:
    day = timedelta(days=1)
    await Retention(store, day, day, day).run_once()


async def test_notes_that_all_cells_have_are_settled_and_upkeep_removes_them_in_each_cell(
    first: Store, second: Store
) -> None:
    await _set(first, STOP)
    await note_changes([first], [("grants", "gone")])
    assert await settle({"a": first, "b": second}, 1)
    await _tidy(first)
    assert await _all_notes(first) == {("gates", "stop"), ("grants", "gone")}
    await catch_up({"a": first, "b": second})
    assert await settle({"a": first, "b": second}, 1)
    for store in (first, second):
        assert await _all_notes(store) == {("gates", "stop"), ("grants", "gone"), SETTLED}
        await _tidy(store)
        assert await _all_notes(store) == {SETTLED}
    assert (await catch_up({"a": first, "b": second})).brought == {}


async def test_notes_that_a_cell_lacks_or_that_are_later_are_kept_until_it_has_them(
    first: Store, second: Store
) -> None:
    await _put_late(first, "before")
    own = STOP._replace(scope=GateScope("b/send"))
    assert await store_gates.put_gate(second, "stop", lambda _: own)
    await _set(first, STOP)  # which cell b cannot take
    await _put_late(first, "later")
    for _ in range(2):
        assert "b" in (await catch_up({"a": first, "b": second})).refused
        assert await settle({"a": first, "b": second}, 1)
    await _tidy(first)
    assert await _all_notes(first) == {("gates", "stop"), ("pools", "later"), SETTLED}
    await store_gates.delete_gates(second, ["stop"])
    await catch_up({"a": first, "b": second})
    await settle({"a": first, "b": second}, 1)
    for store in (first, second):
        await _tidy(store)
        assert await _all_notes(store) == {SETTLED}
    assert await differences(first, second) == {}


async def test_nothing_is_settled_by_an_older_directory_for_a_new_cell_may_lack_it(
    two_cells: TwoCells, first: Store, second: Store
) -> None:
    await _set(first, STOP)
    await catch_up({"a": first, "b": second})
    for cell in ("a", "b"):
        two_cells.write(cell, replace(two_cells.directory, version=2), 1)
    assert not await settle({"a": first, "b": second}, 1)
    assert await _all_notes(first) == await _all_notes(second) == {("gates", "stop")}


async def test_the_notes_of_a_cell_that_is_the_last_one_are_settled(first: Store) -> None:
    await _set(first, STOP)
    assert await settle({"a": first}, 1)
    await _tidy(first)
    assert await _all_notes(first) == {SETTLED}


async def test_a_quiet_round_reads_the_notes_of_each_cell_once_and_what_one_cell_has_not_settled_is_settled(
    two_cells: TwoCells, first: Store, second: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Store] = []
    moments = late_changes._moments

    async def count(store: Store) -> Any:
        reads.append(store)
        return await moments(store)

    monkeypatch.setattr(late_changes, "_moments", count)
    stores = {"a": first, "b": second}
    units: Any = {cell: _Cell(cell, store, asyncio.Event(), None) for cell, store in stores.items()}
    rounds = LateChanges(units, stores, lambda: two_cells.directory)

    async def reads_of_a_round() -> int:
        reads.clear()
        await rounds.run_once()
        return len(reads)

    assert await reads_of_a_round() == 2
    await _set(first, STOP)
    assert await reads_of_a_round() > 2
    await rounds.run_once()
    assert await _all_notes(second) == {("gates", "stop"), SETTLED}
    assert await reads_of_a_round() == 2
    async with second.connection() as connection:  # as if it had stopped answering just before it was told
        await connection.execute("delete from operator_change where kind = 'settled'")
    await rounds.run_once()
    assert await _all_notes(second) == {("gates", "stop"), SETTLED}


async def test_an_old_note_of_a_cell_that_was_restored_from_a_backup_is_no_news(
    first: Store, second: Store
) -> None:
    await _set(second, STOP._replace(reason="old"))
    backup = await second.run(CHANGES["operator_changes"], {})
    await catch_up({"a": first, "b": second})
    await settle({"a": first, "b": second}, 1)
    for store in (first, second):
        await _tidy(store)
    await store_gates.delete_gates(first, ["stop"])  # both answered: nothing was noted
    async with second.connection() as connection:
        await connection.execute("delete from operator_change")
        for row in backup:
            await connection.execute("insert into operator_change values (%s, %s, %s)", row)
    assert (await catch_up({"a": first, "b": second})).brought == {}
    assert await _gates(first) == {}


async def test_a_change_is_noted_after_what_is_settled_by_a_clock_that_is_ahead(
    first: Store, second: Store
) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=1)
    for store in (first, second):
        async with store.connection() as connection:
            await connection.execute("insert into operator_change values ('gates', 'gone', %s)", [ahead])
    await settle({"a": first, "b": second}, 1)
    await _tidy(second)
    await _set(second, STOP)
    assert (await catch_up({"a": first, "b": second})).brought == {"a": [("gates", "stop")]}


# calls


class _Calls:
    """Calls of an operator."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.access = access_pb2_grpc.AccessServiceStub(channel)
        self.gates = gates_pb2_grpc.GateServiceStub(channel)
        self.limits = limits_pb2_grpc.LimitServiceStub(channel)
        self.pools = pools_pb2_grpc.PoolServiceStub(channel)
        self.settings = settings_pb2_grpc.SettingsServiceStub(channel)

    def all(self) -> list[Any]:
        """Return a call of each kind that a cell that is away gets later."""
        grant = access_pb2.Grant(principal="ann", role=access_pb2.ROLE_OPERATOR, pattern="*")
        pool = pools_pb2.Pool(name="gpus", lambdas=["mail.*"], maximum=3, driver="ours")
        put = gates_pb2.PutGateRequest(
            gate={"name": "new", "kind": gates_pb2.GATE_KIND_PAUSE, "scope": {"lambda": "*"}}
        )
        put.duration.FromTimedelta(timedelta(hours=1))
        setting = settings_pb2.NewSetting(name="store_consumer.poll_interval", value="2s")
        return [
            self.gates.PutGate(put),
            self.gates.DeleteGates(gates_pb2.DeleteGatesRequest(names=["old"])),
            self.settings.SetSettings(settings_pb2.SetSettingsRequest(settings=[setting])),
            self.settings.ResetSettings(settings_pb2.ResetSettingsRequest(names=["timing.claim_timeout"])),
            self.limits.PutResource(limits_pb2.PutResourceRequest(resources=[{"name": "db", "capacity": 1}])),
            self.pools.PutPools(pools_pb2.PutPoolsRequest(pools=[{"pool": pool}])),
            self.pools.DeletePools(pools_pb2.DeletePoolsRequest(names=["olds"])),
            self.access.AddGrants(access_pb2.AddGrantsRequest(grants=[grant])),
            self.access.CreateToken(access_pb2.CreateTokenRequest(principal="ann")),
        ]


async def _differ(cells: RoutedCells) -> Any:
    async with (
        Store(StoreSettings(dsn=cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=cells.dsns["b"])) as second,
    ):
        return await differences(first, second)


async def _equal(cells: RoutedCells) -> bool:
    return not await _differ(cells)


@pytest.mark.parametrize("away", ["a", "b"])
async def test_changes_while_a_cell_is_away_are_done_said_and_brought_when_it_is_back(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, away: str
) -> None:
    calls = _Calls(channel_of_cells)
    old = gates_pb2.Gate(name="old", kind=gates_pb2.GATE_KIND_DROP, scope={"lambda": "*"})
    await calls.gates.PutGate(gates_pb2.PutGateRequest(gate=old))
    olds = pools_pb2.Pool(name="olds", lambdas=["mail.*"], maximum=3, driver="ours")
    await calls.pools.PutPools(pools_pb2.PutPoolsRequest(pools=[{"pool": olds}]))
    setting = settings_pb2.NewSetting(name="timing.claim_timeout", value="40s")
    await calls.settings.SetSettings(settings_pb2.SetSettingsRequest(settings=[setting]))
    await routed_cells.lines[away].cut()
    await serves(channel_of_cells, away, expected=False)
    for call in calls.all():
        answer = await call
        errors = [each.error.message for each in getattr(answer, "results", ())]
        assert not any(errors), errors
        assert missing_cells.read(await call.trailing_metadata(), missing_cells.LATER) == (away,)
    listed = await calls.gates.ListGates(gates_pb2.ListGatesRequest())
    assert [gate.name for gate in listed.gates] == ["new"]
    assert set(await _differ(routed_cells)) == {"grants", "tokens", "settings", "resources", "gates", "pools"}
    await routed_cells.lines[away].restore()
    await until(lambda: asyncio.run(_equal(routed_cells)))
    for cell in routed_cells.dsns:
        await until(lambda cell=cell: SETTLED in asyncio.run(_noted(routed_cells, cell)))


async def _noted(cells: RoutedCells, cell: str) -> list[tuple[str, str]]:
    async with Store(StoreSettings(dsn=cells.dsns[cell])) as store:
        return sorted((kind, name) for kind, name, _ in await store.run(CHANGES["operator_changes"], {}))


async def test_a_change_right_after_a_cell_is_back_keeps_what_was_changed_while_it_was_away(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    calls = _Calls(channel_of_cells)
    pool = pools_pb2.Pool(name="gpus", lambdas=["mail.*"], maximum=3, driver="ours")
    await calls.pools.PutPools(pools_pb2.PutPoolsRequest(pools=[{"pool": pool}]))
    await calls.limits.PutResource(limits_pb2.PutResourceRequest(resources=[{"name": "db", "capacity": 1}]))
    async with (
        Store(StoreSettings(dsn=routed_cells.dsns["a"])) as first,
        Store(StoreSettings(dsn=routed_cells.dsns["b"])) as second,
    ):
        # as a Frontend did that saw a away; the next round of this one is in a minute
        await store_gates.put_gate(second, "stop", lambda _: STOP)
        await store_pools.put_pool(second, "gpus", lambda before: replace(before, maximum=9))  # type: ignore[type-var]
        await put_resource(second, ResourceChange.whole(ResourceLimit("db", 7)), set_by="ann")
        await note_changes([second], [("gates", "stop"), ("pools", "gpus"), ("resources", "db")])
        minimum = FieldMask(paths=["minimum"])
        asked = pools_pb2.NewPool(pool={"name": "gpus", "minimum": 1}, update_mask=minimum)
        (put,) = (await calls.pools.PutPools(pools_pb2.PutPoolsRequest(pools=[asked]))).results
        assert (put.pool.minimum, put.pool.maximum) == (1, 9), put.error
        note = limits_pb2.PutResourceRequest(
            resources=[{"name": "db", "note": "ours"}], update_masks={"db": FieldMask(paths=["note"])}
        )
        (limited,) = (await calls.limits.PutResource(note)).results
        assert (limited.limit.capacity, limited.limit.note) == (7, "ours")
        reason = gates_pb2.PutGateRequest(
            gate={"name": "stop", "reason": "again"}, update_mask=FieldMask(paths=["reason"])
        )
        assert not (await calls.gates.PutGate(reason)).created
        assert await differences(first, second) == {}
        assert await _gates(first) == {"stop": ("*", "again")}


async def test_what_is_refused_is_not_noted_and_the_rest_comes_to_the_cell_that_was_away(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    calls = _Calls(channel_of_cells)
    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)
    names = ["db", "x" * 1100, "a\0b"]
    call = calls.limits.PutResource(
        limits_pb2.PutResourceRequest(resources=[{"name": name, "capacity": 1} for name in names])
    )
    assert [each.HasField("error") for each in (await call).results] == [False, True, True]
    assert missing_cells.read(await call.trailing_metadata(), missing_cells.LATER) == ("b",)
    unknown = calls.pools.DeletePools(pools_pb2.DeletePoolsRequest(names=["none"]))
    assert (await unknown).results[0].HasField("error")
    assert missing_cells.read(await unknown.trailing_metadata(), missing_cells.LATER) == ()
    token_id = (await calls.access.CreateToken(access_pb2.CreateTokenRequest(principal="ann"))).token_id
    revoke = access_pb2.RevokeTokensRequest(token_ids=["none", token_id])
    with pytest.raises(grpc.aio.AioRpcError, match="revoked in cell a; not in cell b"):
        await calls.access.RevokeTokens(revoke)
    assert await _noted(routed_cells, "a") == [("resources", "db"), ("tokens", token_id)]
    await routed_cells.lines["b"].restore()
    await until(lambda: asyncio.run(_equal(routed_cells)))


@pytest.mark.parametrize("principal", ["é" * 127, "\x01" * 255, "ann"])
def test_the_name_of_a_grant_fits_into_a_note_whatever_its_principal_is_called(principal: str) -> None:
    names = {grant_name(principal, role, f"{'p' * 254}*") for role in ("owner", "client")}
    assert len(names) == 2
    assert all(len(name.encode()) <= 1024 for name in names)


async def test_what_would_be_counted_lacks_the_cell_that_is_away_and_says_so(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, tmp_path: Path
) -> None:
    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)
    gate = gates_pb2.Gate(kind=gates_pb2.GATE_KIND_PAUSE, scope={"lambda": "*"})
    call = _Calls(channel_of_cells).gates.PutGate(gates_pb2.PutGateRequest(gate=gate, dry_run=True))
    assert (await call).hits == []
    assert missing_cells.read(await call.trailing_metadata()) == ("b",)
