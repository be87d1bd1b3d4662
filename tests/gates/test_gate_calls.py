"""Gates and breakers from the SDK and from the shell, and every refusal."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

import duly
from duly_core.gates import store as store_gates
from duly_wire.gate_names import usual_name
from duly_wire.v1 import gates_pb2, gates_pb2_grpc
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

HOUR = timedelta(hours=1)


@pytest.fixture
def stub(frontend):
    return gates_pb2_grpc.GateServiceStub(frontend.channel)


async def test_a_gate_is_set_listed_and_removed(client):
    made = await client.put_gate(
        "black-friday",
        duly.GateKind.PAUSE,
        LAMBDA,
        collection="marketing",
        priority=duly.Priority.LOW,
        reason="too much mail",
        duration=HOUR,
        owner="ann",
    )

    assert (made.name, made.kind, made.lambda_name) == ("black-friday", duly.GateKind.PAUSE, LAMBDA)
    assert (made.collection, made.priority, made.session) == ("marketing", duly.Priority.LOW, "")
    assert (made.owner, made.reason, made.parked) == ("ann", "too much mail", 0)
    assert made.expires_at - made.created_at == HOUR
    assert await client.gates() == [made]
    await client.delete_gate("black-friday")
    assert await client.gates() == []
    with pytest.raises(duly.UnknownGateError, match="there is no gate 'black-friday'"):
        await client.delete_gate("black-friday")


async def test_an_invalid_gate_is_refused(stub, client):
    for gate, field in [
        ({"name": "No"}, "gate.name"),
        ({"name": "breaker:mail.send"}, "gate.name"),
        ({"kind": 0}, "gate.kind"),
        ({"kind": 9}, "gate.kind"),
        ({"scope": {}}, "gate.scope.lambda"),
        ({"scope": {"lambda": "No"}}, "gate.scope.lambda"),
        ({"scope": {"lambda": "No*"}}, "gate.scope.lambda"),
        ({"scope": {"lambda": "*", "collection": "No"}}, "gate.scope.collection"),
        ({"scope": {"lambda": "*", "session": "x" * 256}}, "gate.scope.session"),
        ({"scope": {"lambda": "*", "priority": 9}}, "gate.scope.priority"),
        ({"reason": "x" * 1025}, "gate.reason"),
        ({"owner": "x" * 256}, "owner"),
        ({"delay": HOUR}, "gate.delay"),
        ({"kind": gates_pb2.GATE_KIND_DELAY}, "gate.delay"),
    ]:
        whole = {"name": "held", "kind": gates_pb2.GATE_KIND_PAUSE, "scope": {"lambda": LAMBDA}} | gate

        refused = await refusal(stub.PutGate(gates_pb2.PutGateRequest(gate=whole)))

        assert refused.field == field
        assert await client.gates() == []


async def test_an_end_is_said_once(stub):
    gate = {"name": "held", "kind": gates_pb2.GATE_KIND_PAUSE, "scope": {"lambda": LAMBDA}}
    request = gates_pb2.PutGateRequest(gate=gate, duration=HOUR)
    request.gate.expires_at.FromDatetime(datetime(2099, 1, 1, tzinfo=UTC))

    assert (await refusal(stub.PutGate(request))).field == "duration"


async def test_too_many_gates_are_refused(client, monkeypatch):
    monkeypatch.setattr(store_gates, "MOST_GATES", 1)
    await client.put_gate("one", duly.GateKind.PAUSE, LAMBDA)

    with pytest.raises(duly.InvalidTaskError, match="remove some first"):
        await client.put_gate("two", duly.GateKind.PAUSE, LAMBDA)


async def test_a_breaker_is_set_listed_and_removed(client):
    made = await client.put_breaker(LAMBDA, 0.5, minimum=5, reason="deploys", owner="ann")

    assert (made.lambda_name, made.failure_rate, made.minimum) == (LAMBDA, 0.5, 5)
    assert (made.window, made.pause, made.probes) == (timedelta(minutes=1), timedelta(seconds=30), 3)
    assert (made.state, made.ended, made.failed) == (duly.BreakerState.CLOSED, 0, 0)
    assert (made.owner, made.reason) == ("ann", "deploys")
    assert await client.breakers() == [made]
    await client.delete_breaker(LAMBDA)
    assert await client.breakers() == []
    with pytest.raises(duly.UnknownGateError, match="has no breaker"):
        await client.delete_breaker(LAMBDA)


async def test_an_invalid_breaker_is_refused(stub, client):
    for breaker, field in [
        ({"lambda": "mail.*"}, "breaker.lambda"),
        ({"failure_rate": 0}, "breaker.failure_rate"),
        ({"failure_rate": 1.1}, "breaker.failure_rate"),
        ({"failure_rate": float("nan")}, "breaker.failure_rate"),
        ({"minimum": -1}, "breaker.minimum"),
        ({"probes": -1}, "breaker.probes"),
        ({"window": timedelta()}, "breaker.window"),
        ({"pause": timedelta(days=2)}, "breaker.pause"),
        ({"reason": "x" * 1025}, "breaker.reason"),
    ]:
        whole = {"lambda": LAMBDA, "failure_rate": 0.5, "minimum": 1, "probes": 1}
        whole |= {"window": HOUR, "pause": HOUR} | breaker

        refused = await refusal(stub.PutBreaker(gates_pb2.PutBreakerRequest(breaker=whole)))

        assert refused.field == field
        assert await client.breakers() == []


async def test_the_shell_sets_lists_and_removes_gates(run_duly, client):
    set_ = await run_duly(
        "gates", "set", "--lambda", LAMBDA, "--pause", "--until", "2h", "--reason", "too much mail"
    )
    listed = await run_duly("gates", "list", "--json")

    assert set_.exit_code == 0, set_.output
    assert f"pause-{LAMBDA}" in set_.output
    gate = json.loads(listed.output)
    assert (gate["name"], gate["kind"], gate["reason"]) == (f"pause-{LAMBDA}", "pause", "too much mail")
    assert gate["owner"]
    removed = await run_duly("gates", "remove", f"pause-{LAMBDA}")
    assert (removed.exit_code, await client.gates()) == (0, [])
    assert "no gates" in (await run_duly("gates", "list")).output


async def test_the_shell_sets_gates_on_namespaces_and_parts_of_lambdas(run_duly, client):
    await run_duly("gates", "set", "--namespace", "shop", "--drop")
    await run_duly("gates", "set", "--lambda", "*", "--session", "ann", "--priority", "low", "--delay", "10m")

    delayed, dropped = await client.gates()

    assert (dropped.name, dropped.kind, dropped.lambda_name) == (
        "drop-shop-all-7f53fc49",
        duly.GateKind.DROP,
        "shop/*",
    )
    assert (delayed.name, delayed.session, delayed.delay) == (
        "delay-all-low-ann-c93fa8d3",
        "ann",
        timedelta(minutes=10),
    )


async def test_the_shell_says_so_if_no_lambda_has_the_name_of_a_gate(run_duly, client, task_states):
    await task_states.register()

    misspelt = await run_duly("gates", "set", "--lambda", "mail.sent", "--pause")
    counted = await run_duly("gates", "set", "--lambda", "mail.sent", "--dry-run")
    known = [
        await run_duly("gates", "set", "--lambda", name, "--pause")
        for name in (LAMBDA, f"{LAMBDA}@2", "mail.*", "*")
    ]

    for each in (misspelt, counted):
        assert each.exit_code == 0
        assert "no lambda is called 'mail.sent', so the gate holds nothing" in each.stderr
    assert all(each.exit_code == 0 and not each.stderr for each in known)


async def test_the_shell_counts_what_a_gate_would_hit(run_duly, client, task_states):
    await task_states.register()
    await client.schedule(LAMBDA)

    shown = await run_duly("gates", "set", "--lambda", LAMBDA, "--dry-run")
    as_json = await run_duly("gates", "set", "--lambda", LAMBDA, "--dry-run", "--json")

    assert shown.output.splitlines() == ["it would hit 1 task", "  new: 1"]
    assert json.loads(as_json.output) == {"hits": {"new": 1}, "total": 1, "truncated": False}
    assert await client.gates() == []


async def test_the_shell_pauses_and_resumes_a_lambda_by_a_gate_that_it_shows(run_duly, client, task_states):
    await task_states.register()
    await client.put_gate("sale", duly.GateKind.PAUSE, LAMBDA, collection="sale")
    name = f"pause-{LAMBDA}"

    paused = await run_duly("pause", LAMBDA, "--until", "2h", "--reason", "a deploy")
    kept = await run_duly("pause", LAMBDA)
    shown = await run_duly("gates", "show", name)
    resumed = await run_duly("resume", LAMBDA)
    again = await run_duly("resume", LAMBDA)
    every = await run_duly("pause", "*")
    await run_duly("resume", "*")
    await client.put_gate(name, duly.GateKind.PAUSE, LAMBDA, collection="sale")
    taken = await run_duly("pause", LAMBDA)
    await client.delete_gate(name)

    assert (paused.exit_code, paused.stderr) == (0, "")
    (until,) = re.findall(r"paused (until \S+ .*) by the gate", paused.stdout)
    assert until in kept.stdout
    assert f"`duly resume {LAMBDA}` removes it" in paused.stdout
    assert "`duly resume '*'` removes it" in every.stdout
    assert taken.exit_code == 2
    assert "does something else" in " ".join(taken.stderr.split())
    facts = dict(line.strip().split("  ", 1) for line in shown.stdout.splitlines())
    assert (facts["kind"], facts["lambda"], facts["reason"]) == ("pause", LAMBDA, "a deploy")
    assert name in resumed.stdout
    assert (again.exit_code, again.stdout) == (1, "")
    assert "no gate pauses all of" in again.stderr
    assert [each.name for each in await client.gates()] == ["sale"]


async def test_the_shell_sets_lists_and_removes_breakers(run_duly, client):
    arguments = (
        "--failure-rate",
        "0.5",
        "--minimum",
        "20",
        "--window",
        "1m",
        "--pause",
        "30s",
        "--probes",
        "3",
    )
    set_ = await run_duly("gates", "breaker", LAMBDA, *arguments)
    listed = await run_duly("gates", "breakers", "--json")
    shown = await run_duly("gates", "breakers")

    assert set_.exit_code == 0, set_.output
    assert json.loads(listed.output)["state"] == "closed"
    assert "SINCE" in shown.output
    assert "50% of 20+" in shown.output
    assert (await run_duly("gates", "breaker", LAMBDA)).exit_code == 2
    assert (await run_duly("gates", "breaker", LAMBDA, "--remove")).exit_code == 0
    assert await client.breakers() == []


async def test_to_remove_gates_that_are_not_there_tells_nobody_of_a_change(store, client):
    before = (await store_gates.read_gates(store, -1)).version

    with pytest.raises(duly.DulyError):
        await client.delete_gate("no-such-gate")

    assert (await store_gates.read_gates(store, -1)).version == before


async def test_a_name_with_a_nul_is_refused(client):
    with pytest.raises(duly.DulyError, match="without NUL"):
        await client.delete_gate("a\x00b")
    with pytest.raises(duly.DulyError, match="without NUL"):
        await client.delete_breaker("a\x00b")


def test_lambdas_whose_names_differ_have_gates_of_different_names():
    lambdas = [
        "shop-mail",
        "shop/mail",
        "shop@mail",
        "shop-all",
        "shop*",
        "shop/*",
        f"{'a' * 128}b",
        f"{'a' * 128}c",
    ]

    names = {usual_name("pause", each) for each in lambdas}

    assert len(names) == len(lambdas)
    assert all(re.fullmatch("[a-z0-9][a-z0-9_.-]{0,127}", each) for each in names)
    assert usual_name("pause", "shop-mail", "", "low") == "pause-shop-mail-low"
