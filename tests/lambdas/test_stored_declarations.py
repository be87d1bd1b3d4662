"""Lambdas that are declared, transferred, rolled back and deleted, over the real wire and the real store."""

import asyncio
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration

import duly
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.declarations import Verdict
from duly_core.lambdas.policy import LambdaPolicy
from duly_wire.v1 import registry_pb2, task_pb2, time_tables_pb2

NAME = "mail.send"


@pytest.fixture
async def client(frontend):
    async with duly.AsyncClient(frontend.address) as client:
        yield client


async def declare(frontend, version, owner="mail team", name=NAME, **fields):
    declared = registry_pb2.Lambda(name=name, owner=owner, version=version, **fields)
    request = registry_pb2.RegisterLambdasRequest(lambdas=[declared])
    (result,) = (await frontend.registry.RegisterLambdas(request)).results
    return result


async def in_force(client, name=NAME):
    found = (await client.get_lambda(name)).in_force
    return found and (found.version, found.max_attempts)


async def test_an_old_worker_that_restarts_changes_nothing(frontend, client):
    await declare(frontend, "1.9", max_attempts=3)
    await declare(frontend, "1.10", max_attempts=5)

    result = await declare(frontend, "1.9", max_attempts=3)

    assert not result.HasField("error")
    assert not result.in_force
    assert "version '1.9' is older than '1.10', which is in force" in result.warning
    assert await in_force(client) == ("1.10", 5)


async def test_a_version_that_has_no_number_is_newer_if_it_was_never_in_force(frontend, client):
    await declare(frontend, "cafe")
    await declare(frontend, "beef")

    assert (await declare(frontend, "beef")).in_force
    assert not (await declare(frontend, "cafe")).in_force
    assert await in_force(client) == ("beef", 10)


async def test_another_policy_under_one_version_is_written_with_a_warning(frontend, client):
    await declare(frontend, "1.9")

    result = await declare(frontend, "1.9", max_attempts=4)

    assert "another policy under the same version '1.9'" in result.warning
    assert await in_force(client) == ("1.9", 4)


async def test_a_rollback_holds_at_once_and_against_workers_of_the_version_it_took_back(frontend, client):
    await declare(frontend, "1.9", max_attempts=3)
    await declare(frontend, "1.10", max_attempts=5)

    await client.roll_back_lambda(NAME, "1.9")

    assert await in_force(client) == ("1.9", 3)
    assert not (await declare(frontend, "1.10", max_attempts=5)).in_force
    assert (await declare(frontend, "1.11", max_attempts=6)).in_force
    assert await in_force(client) == ("1.11", 6)


async def test_a_lambda_in_a_namespace_is_rolled_back_and_transferred(frontend, client):
    name = "shop/mail.send"
    await declare(frontend, "1.9", max_attempts=3, name=name)
    await declare(frontend, "1.10", max_attempts=5, name=name)

    await client.roll_back_lambda(name, "1.9")
    await client.transfer_lambda(name, "shop team")

    found = (await client.get_lambda(name)).in_force
    assert (found.version, found.owner) == ("1.9", "shop team")
    request = registry_pb2.UpdateLambdaRequest(name=f"{name}@1.9", owner="mail team")
    assert (await frontend.registry.UpdateLambda(request)).error.field == "name"


async def test_a_rollback_to_a_version_that_nobody_declared_is_refused(frontend, client):
    await declare(frontend, "1.9")

    with pytest.raises(duly.InvalidTaskError, match="no host declared the version"):
        await client.roll_back_lambda(NAME, "1.8")
    with pytest.raises(duly.UnknownLambdaError):
        await client.roll_back_lambda("nobody", "1.8")


async def test_another_owner_is_refused_until_an_operator_transfers_the_lambda(frontend, client):
    await declare(frontend, "1.9")

    refused = await declare(frontend, "7", owner="web team")
    nobody = await declare(frontend, "1.9", owner="")
    await client.transfer_lambda(NAME, "web team")
    taken = await declare(frontend, "7", owner="web team")
    before = await declare(frontend, "1.10")

    assert refused.error.code == nobody.error.code == task_pb2.ERROR_CODE_NOT_OWNER
    assert "owned by 'mail team'" in refused.error.message
    assert "duly lambdas transfer mail.send --to OWNER" in refused.error.message
    assert taken.in_force
    assert before.error.code == task_pb2.ERROR_CODE_NOT_OWNER


async def test_a_lambda_that_nobody_owns_belongs_to_the_first_owner_that_is_declared(frontend, client):
    await declare(frontend, "1.9", owner="")

    assert (await declare(frontend, "1.9", owner="mail team")).in_force
    assert (await declare(frontend, "1.9", owner="")).HasField("error")


async def test_a_change_of_what_was_read_is_refused_if_somebody_changed_it_meanwhile(frontend, client):
    await declare(frontend, "1.9")
    revision = (await client.get_lambda(NAME)).in_force.revision
    await declare(frontend, "1.10")

    for change in (
        client.transfer_lambda(NAME, "web team", expected_revision=revision),
        client.roll_back_lambda(NAME, "1.9", expected_revision=revision),
        client.delete_lambda(NAME, expected_revision=revision),
    ):
        with pytest.raises(duly.LambdaConflictError, match="revision is 2 now"):
            await change
    await client.transfer_lambda(NAME, "web team", expected_revision=revision + 1)


async def test_a_lambda_shows_the_versions_that_workers_declared(frontend, client):
    await declare(frontend, "1.9")
    await declare(frontend, "1.10")
    await declare(frontend, "1.8")

    detail = await client.get_lambda(NAME)

    assert (detail.in_force.owner, detail.in_force.version, detail.in_force.revision) == (
        "mail team",
        "1.10",
        2,
    )
    assert {each.version: each.was_in_force for each in detail.versions} == {
        "1.8": False,
        "1.9": True,
        "1.10": True,
    }
    with pytest.raises(duly.UnknownLambdaError):
        await client.get_lambda("nobody")


async def test_a_deleted_lambda_takes_no_tasks_and_no_old_worker_brings_it_back(frontend, client):
    await declare(frontend, "1.9")

    deletion = await client.delete_lambda(NAME)

    assert (deletion.pending, deletion.running) == (0, 0)
    with pytest.raises(duly.UnknownLambdaError):
        await client.schedule(NAME)
    back = await declare(frontend, "1.9")
    assert (back.HasField("error"), back.in_force) == (False, False)
    assert "the lambda was deleted" in back.warning
    detail = await client.get_lambda(NAME)
    assert (detail.in_force, detail.deleted.version) == (None, "1.9")
    assert (await declare(frontend, "1.10")).in_force
    assert (await client.get_lambda(NAME)).deleted is None
    assert not (await declare(frontend, "1.9")).in_force


async def test_a_deletion_is_refused_while_tasks_live_and_changes_nothing(frontend, client):
    await declare(frontend, "1.9")
    task = await client.schedule(NAME, delay=timedelta(hours=1))

    counted = await client.delete_lambda(NAME, dry_run=True)
    with pytest.raises(duly.LambdaInUseError, match="1 wait and 0 run"):
        await client.delete_lambda(NAME)

    assert (counted.pending, counted.running, counted.cancelled) == (1, 0, 0)
    assert await in_force(client) is not None
    assert (await client.get(task)).status is duly.TaskStatus.NEW


async def test_a_deletion_cancels_tasks_if_told_and_their_history_stays(frontend, client):
    await declare(frontend, "1.9")
    await client.create_table("mail.daily", NAME, every=timedelta(days=1))
    tasks = [await client.schedule(NAME, {"n": n}, delay=timedelta(hours=1)) for n in range(3)]

    deletion = await client.delete_lambda(NAME, cancel_tasks=True)

    assert (deletion.pending, deletion.time_tables, deletion.cancelled) == (3, 1, 3)
    assert [each.status for each in await client.get_many(tasks)] == [duly.TaskStatus.CANCELLED] * 3
    assert [each.task_id async for each in client.list(lambda_name=NAME)]
    with pytest.raises(duly.TimeTableNotFoundError):
        await client.table("mail.daily")


async def test_a_deletion_that_broke_off_is_repeated(frontend, client):
    await declare(frontend, "1.9")
    task = await client.schedule(NAME, delay=timedelta(hours=1))
    request = registry_pb2.DeleteLambdaRequest(name=NAME, despite_tasks=True)
    await frontend.registry.DeleteLambda(request)

    deletion = await client.delete_lambda(NAME, cancel_tasks=True)

    assert deletion.cancelled == 1
    assert (await client.get(task)).status is duly.TaskStatus.CANCELLED
    with pytest.raises(duly.UnknownLambdaError):
        await client.delete_lambda("nobody")


async def test_a_restored_lambda_is_registered_by_whichever_worker_starts(frontend, client):
    await declare(frontend, "1.9")
    await client.delete_lambda(NAME)

    await client.restore_lambda(NAME)

    assert (await declare(frontend, "1.9")).in_force
    with pytest.raises(duly.UnknownLambdaError, match="was deleted"):
        await client.restore_lambda(NAME)


async def test_time_tables_of_a_declaration_that_is_not_in_force_are_not_written(frontend, client):
    table = time_tables_pb2.TimeTable(name="mail.old", every=Duration(seconds=3600))
    await declare(frontend, "1.10")

    await declare(frontend, "1.9", time_tables=[table])

    with pytest.raises(duly.TimeTableNotFoundError):
        await client.table("mail.old")


async def test_hosts_of_two_versions_that_start_at_once_leave_the_newer_one_in_force(frontend, client):
    starts = [declare(frontend, f"1.{number}", max_attempts=number + 1) for number in range(20)]

    results = await asyncio.gather(*starts)

    assert not any(result.HasField("error") for result in results)
    assert await in_force(client) == ("1.19", 20)


async def test_a_declaration_that_changes_nothing_writes_nothing(task_states):
    policies = [LambdaPolicy(f"l{number}", owner="mail team", version="1") for number in range(50)]
    await lambdas.register(task_states.store, policies)

    async def writes():
        async with task_states.store.connection() as connection:
            cursor = await connection.execute(
                "select max(xmin::text::bigint), max(ctid) from lambda_declaration"
            )
            return await cursor.fetchone()

    before = await writes()
    answers = await lambdas.register(task_states.store, policies)

    assert {answer.verdict for answer in answers.values()} == {Verdict.UNCHANGED}
    assert await writes() == before


@pytest.mark.long  # 5,000 lambdas
async def test_five_thousand_lambdas_register_while_other_calls_are_served(frontend, client):
    await declare(frontend, "1")
    names = [f"many.l{number}" for number in range(5_000)]

    async def register_all():
        for start in range(0, len(names), 1_000):
            some = [registry_pb2.Lambda(name=name, version="1") for name in names[start : start + 1_000]]
            await frontend.registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=some))

    registering = asyncio.ensure_future(register_all())
    served = 0
    while not registering.done():
        await client.schedule(NAME)
        served += 1
    await registering

    assert served >= 10
    assert len(await client.lambdas()) == 5_001
