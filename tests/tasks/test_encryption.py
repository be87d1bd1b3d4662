"""Encrypted payloads through a real Frontend: repeats, changed keys, updates, and what the Frontend refuses."""

import json
import os

import pytest

import duly
from duly.client import AsyncClient
from duly.encryption import AesGcm
from duly_cli.output.task_text import task_as_json, task_lines
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.task_states import LAMBDA

OLD, NEW = os.urandom(32), os.urandom(32)
BEFORE = AesGcm({"2026-10": OLD}, "2026-10")
NOW = AesGcm({"2026-10": OLD, "2026-11": NEW}, "2026-11")
SECRET = {"card": "4111-1111"}


@pytest.fixture
async def client(frontend, task_states):
    await task_states.register()
    async with AsyncClient(frontend.address, codec=NOW) as opened:
        yield opened


@pytest.fixture
async def client_before(frontend, task_states):
    async with AsyncClient(frontend.address, codec=BEFORE) as opened:
        yield opened


@pytest.fixture
async def stranger(frontend):
    async with AsyncClient(frontend.address) as opened:
        yield opened


async def test_the_store_holds_no_plain_payload_and_the_client_reads_it(client, store):
    task = await client.schedule(LAMBDA, SECRET)

    async with store.connection() as connection:
        row = await (await connection.execute("select payload, payload_encoding from task")).fetchone()
    assert b"4111" not in row[0]
    assert row[1] == task_pb2.ENCODING_ENCRYPTED
    assert (await client.get(task)).payload == SECRET


async def test_a_repeat_is_the_same_task_and_another_payload_is_a_conflict(client):
    first = await client.schedule(LAMBDA, SECRET, idempotency_key="k")

    again = await client.schedule(LAMBDA, SECRET, idempotency_key="k")

    assert (again.task_id, again.created) == (first.task_id, False)
    with pytest.raises(duly.KeyConflictError):
        await client.schedule(LAMBDA, {"card": "another"}, idempotency_key="k")
    with pytest.raises(duly.KeyConflictError):
        await client.schedule(LAMBDA, SECRET, idempotency_key="k", priority=duly.Priority.LOW)


async def test_a_repeat_with_another_key_is_the_same_task(client, client_before):
    first = await client_before.schedule(LAMBDA, SECRET, idempotency_key="k")

    again = await client.schedule(LAMBDA, SECRET, idempotency_key="k")

    assert (again.task_id, again.created) == (first.task_id, False)
    assert (await client.get(first)).payload == SECRET


async def test_a_plain_repeat_of_an_encrypted_task_is_a_conflict(client, stranger):
    await client.schedule(LAMBDA, SECRET, idempotency_key="k")

    with pytest.raises(duly.KeyConflictError):
        await stranger.schedule(LAMBDA, SECRET, idempotency_key="k")


async def test_a_repeat_after_an_update_is_the_same_task(client):
    first = await client.schedule(LAMBDA, SECRET, idempotency_key="k")
    await client.update(first, payload={"card": "new"})

    again = await client.schedule(LAMBDA, SECRET, idempotency_key="k")

    assert again.created is False
    assert (await client.get(first)).payload == {"card": "new"}


async def test_what_cannot_be_decrypted_is_shown_by_the_name_of_its_key(client, stranger):
    task = await client.schedule(LAMBDA, SECRET)

    found = await stranger.get(task)

    assert json.loads(json.dumps(task_as_json(found)))["payload"] == "encrypted (key 2026-11)"
    assert any("encrypted (key 2026-11)" in line for line in task_lines(found))


async def test_time_tables_and_graph_definitions_keep_encrypted_payloads(client, stranger):
    await client.create_table("nightly", LAMBDA, SECRET, cron="@daily")
    again = await client.create_table("nightly", LAMBDA, SECRET, cron="@daily")
    graph = duly.NewGraph("discovery")
    graph.task(LAMBDA, SECRET, label="first")
    versions = [(await client.put_graph_definition(graph)).version for _ in range(2)]

    scheduled = await client.run_graph("discovery", {"first": {"more": 1}})

    assert (again.payload, again.revision, versions) == (SECRET, 1, [1, 1])
    assert str((await stranger.table("nightly")).payload) == "encrypted (key 2026-11)"
    assert (await client.get(scheduled.task_ids["first"])).payload == SECRET | {"more": 1}


@pytest.mark.parametrize("payload", [b"", b"{}", b"\xd0\x01", b"\xd0\x01\x00xxxx", b"\xd0\x01\x09key"])
async def test_an_encrypted_payload_that_names_no_key_is_refused(frontend, task_states, payload):
    await task_states.register()
    new = frontend_pb2.NewTask(payload=payload, payload_encoding=task_pb2.ENCODING_ENCRYPTED)
    setattr(new, "lambda", LAMBDA)

    (result,) = (await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[new]))).results

    assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, "payload")
