"""Ramps: a part of the new tasks of a lambda goes to one of its versions."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duly
from duly.client import AsyncClient
from duly_core.lambdas.ramps import WHOLE, Ramp
from duly_wire.ids import new_task_id
from duly_wire.v1 import fleet_pb2_grpc, frontend_pb2, registry_pb2, task_pb2
from tests.explain.test_explain_reasons import a_report
from tests.fixtures.task_states import LAMBDA

TWO = f"{LAMBDA}@2.0"


@pytest.fixture
async def client(frontend, task_states):
    for name, version in ((LAMBDA, "1.0"), (TWO, "2.0"), (f"{LAMBDA}@3", "3")):
        await task_states.register(name, version=version)
    async with AsyncClient(frontend.address) as opened:
        yield opened


async def queues(client, **fields):
    tasks = await client.schedule_many([duly.NewTask(LAMBDA, **fields) for _ in range(60)])
    return [each.lambda_name for each in await client.get_many(tasks)]


@given(st.text(max_size=20), st.binary(max_size=20), st.integers(0, WHOLE), st.integers(0, WHOLE))
def test_more_percent_only_moves_more_over(name, key, some, more):
    some, more = sorted((some, more))

    taken = Ramp("2", some).takes(name, key), Ramp("2", more).takes(name, key)

    assert taken in {(False, False), (False, True), (True, True)}
    assert Ramp("2", WHOLE).takes(name, key)
    assert not Ramp("2", 0).takes(name, key)


def test_so_much_goes_over_as_the_ramp_says():
    ids = [new_task_id().bytes for _ in range(20_000)]

    for permille in (5, 100, 500):
        taken = sum(Ramp("2", permille).takes(LAMBDA, each) for each in ids)
        assert abs(taken - 20 * permille) < 6 * (20 * permille) ** 0.5


async def test_a_ramp_sends_what_it_says_and_keeps_sessions_and_fair_keys_together(client):
    plain = await queues(client)
    await client.ramp_lambda(LAMBDA, "2.0", 50, force=True)
    half = await queues(client)
    together = [
        {*await queues(client, **{field: value})}
        for value in ("ada", "bob", "cem", "dee", "eve", "fay", "gil", "hal")
        for field in ("fair_key", "session")
    ]
    one = {(await client.get(await client.schedule(LAMBDA))).lambda_name for _ in range(40)}
    await client.ramp_lambda(LAMBDA, "2.0", 100, force=True)
    whole = await queues(client)
    await client.ramp_lambda(LAMBDA, "2.0", 0)
    none = await queues(client)
    await client.end_ramp(LAMBDA)

    assert {*plain} == {*none} == {*await queues(client)} == {LAMBDA}
    assert {*half} == one == {LAMBDA, TWO}
    assert {*whole} == {TWO}
    assert all(len(each) == 1 for each in together)
    assert set.union(*together) == {LAMBDA, TWO}
    assert together[::2] == together[1::2]  # a session goes where a fair key of this name goes


async def test_what_names_a_version_a_key_or_too_much_is_not_sent(client, task_states):
    await task_states.register(TWO, version="2.0", payload_limit=10)
    await client.ramp_lambda(LAMBDA, "2.0", 100, force=True)

    tasks = [
        await client.schedule(LAMBDA, idempotency_key="a"),
        await client.schedule(LAMBDA, unique="b"),
        await client.schedule(LAMBDA, "longer than 10"),
        await client.schedule(LAMBDA, lambda_version="3"),
        await client.schedule(LAMBDA, "short"),
    ]

    found = [each.lambda_name for each in await client.get_many(tasks)]
    assert found == [LAMBDA, LAMBDA, LAMBDA, f"{LAMBDA}@3", TWO]


async def test_a_repeat_is_a_repeat_whatever_the_ramp_is_now(client, frontend):
    async def asked(*ids, payload=b"1"):
        tasks = [
            frontend_pb2.NewTask(**{"lambda": LAMBDA}, payload=payload, task_id=str(each)) for each in ids
        ]
        return list((await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks))).results)

    changes = [
        partial(client.end_ramp, LAMBDA),
        partial(client.ramp_lambda, LAMBDA, "2.0", 100, force=True),
        partial(client.ramp_lambda, LAMBDA, "3", 100, force=True),
        partial(client.end_ramp, LAMBDA),
    ]
    ids = []
    for change in changes:
        await change()
        ids.append(new_task_id())
        alone = [each for task_id in ids for each in await asked(task_id)]
        together = await asked(*ids)

        assert [each.created for each in alone] == [False] * (len(ids) - 1) + [True]
        assert [each.task_id for each in (*alone, *together)] == [*map(str, ids)] * 2
        assert not any(each.created or each.HasField("error") for each in together)

    found = [each.lambda_name for each in await client.get_many([*map(str, ids)])]
    assert found == [LAMBDA, TWO, f"{LAMBDA}@3", LAMBDA]
    for task_id in ids:
        (refused,) = await asked(task_id, payload=b"2")
        assert refused.error.code == task_pb2.ERROR_CODE_KEY_CONFLICT


@pytest.mark.parametrize(
    ("name", "version", "percent", "force", "error", "said"),
    [
        ("nobody", "2.0", 10, True, duly.UnknownLambdaError, "no lambda"),
        (LAMBDA, "9", 10, False, duly.InvalidTaskError, "no host declared that it serves version '9'"),
        (LAMBDA, "9", 10, True, duly.InvalidTaskError, "no host declared that it serves version '9'"),
        (LAMBDA, "2.0", 10, False, duly.InvalidTaskError, "no live host serves mail.send@2.0"),
        (LAMBDA, "", 10, True, duly.InvalidTaskError, "say to which version"),
        (LAMBDA, "~lab", 10, True, duly.InvalidTaskError, "must be 1 to 64"),
        (TWO, "3", 10, True, duly.InvalidTaskError, "without a version"),
        (LAMBDA, "2.0", 100.1, True, duly.InvalidTaskError, "use 0 to 100"),
        (LAMBDA, "2.0", -1, True, duly.InvalidTaskError, "use 0 to 100"),
        (LAMBDA, "2.0", 0.05, True, duly.InvalidTaskError, "one decimal"),
        (LAMBDA, "2.0", float("nan"), True, duly.InvalidTaskError, "use 0 to 100"),
        (LAMBDA, "2.0", True, True, duly.InvalidTaskError, "a number from 0 to 100, not bool"),
        (LAMBDA, "2.0", "10%", True, duly.InvalidTaskError, "a number from 0 to 100, not str"),
        (LAMBDA, "2.0", None, True, duly.InvalidTaskError, "a number from 0 to 100, not NoneType"),
    ],
)
async def test_a_ramp_that_cannot_be_is_refused_and_changes_nothing(
    client, name, version, percent, force, error, said
):
    before = await client.get_lambda(LAMBDA)

    with pytest.raises(error, match=said):
        await client.ramp_lambda(name, version, percent, force=force)

    assert await client.get_lambda(LAMBDA) == before


@pytest.mark.parametrize("permille", [-1, 1_001])
async def test_the_server_refuses_what_is_no_part(client, frontend, permille):
    ramp = registry_pb2.LambdaRamp(version="2.0", permille=permille)
    request = registry_pb2.UpdateLambdaRequest(name=LAMBDA, ramp=ramp, ramp_without_host=True)

    answer = await frontend.registry.UpdateLambda(request)

    assert (answer.error.field, (await client.get_lambda(LAMBDA)).in_force.ramp) == ("ramp.permille", None)


async def test_a_live_host_of_just_this_version_makes_a_ramp_possible(client, frontend):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("rack-1:1:a", "rack-1", TWO))

    await client.ramp_lambda(LAMBDA, "2.0", 2.5)

    with pytest.raises(duly.InvalidTaskError, match=r"no live host serves mail\.send@3"):
        await client.ramp_lambda(LAMBDA, "3", 2.5)
    (ramp,) = [each.ramp for each in await client.lambdas() if each.ramp]
    assert (ramp.version, ramp.percent, str(ramp)) == ("2.0", 2.5, "2.5% to version 2.0")


async def test_a_ramp_ends_with_its_lambda_and_holds_its_version(client, task_states):
    await client.ramp_lambda(LAMBDA, "2.0", 10, force=True)

    with pytest.raises(duly.LambdaInUseError, match=r"duly lambdas ramp mail\.send --off"):
        await client.delete_lambda(TWO)
    await client.delete_lambda(LAMBDA)
    await client.restore_lambda(LAMBDA)
    await task_states.register(LAMBDA, version="1.0")

    assert (await client.get_lambda(LAMBDA)).in_force.ramp is None


async def test_explain_says_that_the_ramp_sent_a_task(client):
    pinned = await client.schedule(LAMBDA, lambda_version="2.0", idempotency_key="a")
    await client.ramp_lambda(LAMBDA, "2.0", 100, force=True)
    sent = await client.schedule(LAMBDA)
    kept = await client.schedule(LAMBDA, idempotency_key="b")
    in_session = await client.schedule(LAMBDA, session="ada")

    said = [(await client.explain(each)).history[0].reason for each in (pinned, sent, kept, in_session)]

    sentence = "the ramp of mail.send sent it to version 2.0"
    assert said == ["", sentence, "", f"in the session ada; {sentence}"]


async def test_the_command_sets_shows_and_ends_a_ramp(client, frontend, run_duly):
    done = await run_duly("lambdas", "ramp", LAMBDA, "2.0", "10%", "--force")
    listed = await run_duly("lambdas", "list")
    shown = await run_duly("lambdas", "show", LAMBDA)
    alone = await run_duly("lambdas", "ramp", LAMBDA)
    wrong = [
        await run_duly("lambdas", "ramp", LAMBDA, *given)
        for given in (("2.0",), ("2.0", "some"), ("2.0", "10%", "--off"))
    ]
    off = await run_duly("lambdas", "ramp", LAMBDA, "--off")
    again = await run_duly("lambdas", "ramp", LAMBDA, "--off")

    assert "10% of the new tasks without keys go to version '2.0'" in done.output
    assert "1.0, 10% to version 2.0" in listed.output
    assert "ramp  10% to version 2.0" in shown.output
    assert alone.output == f"{LAMBDA}: 10% to version 2.0\n"
    assert {each.exit_code for each in wrong} == {2}
    assert "stay there" in off.output
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (0, f"{LAMBDA}: no ramp, and there was none")
    assert (await run_duly("lambdas", "ramp", LAMBDA)).output == f"{LAMBDA}: no ramp\n"
    assert "10%" not in (await run_duly("lambdas", "list")).output


def test_a_word_that_is_not_only_is_refused_before_a_version_comes_into_force():
    with pytest.raises(duly.RegistrationError, match='True, False or "only"'):
        duly.App(owner="ann", version="2.0", pinned="onyl")  # type: ignore[arg-type]
