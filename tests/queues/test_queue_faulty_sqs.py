"""The SQS queue keeps its promises when SQS does what it may do: repeats, reorders, loses, refuses, hangs."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from duly_controller.__main__ import build
from duly_core.errors import QueueUnavailableError
from duly_core.postgres.pool import Store
from duly_core.queues.port import QueueReceiver, QueueSender, Received
from duly_core.queues.sqs.names import queue_name
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import controller_stub
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import controller_pb2
from tests.chaos.faulty_sqs import Chances, FaultySqs
from tests.fixtures.host import LIVELY
from tests.fixtures.queues import SECOND, Installation, message, queue_of
from tests.fixtures.scripted_hsc import ScriptedHsc
from tests.fixtures.task_states import TaskStates
from tests.fixtures.waiting import until

pytestmark = pytest.mark.sqs

QUEUE = queue_of()
DEADLINE = 15


@pytest.fixture
def sqs(moto_endpoint: str) -> Iterator[FaultySqs]:
    with FaultySqs(moto_endpoint, seed=1) as faulty:
        yield faulty


@pytest.fixture
def installation(sqs_queue: Installation, sqs: FaultySqs) -> Installation:
    settings = sqs_queue.settings.model_copy(update={"endpoint_url": sqs.endpoint_url})
    return replace(sqs_queue, settings=settings)


async def receive(receiver: QueueReceiver, count: int, within: int = DEADLINE) -> list[Received]:
    """Receive until so many messages have come."""
    received: list[Received] = []
    async with asyncio.timeout(within):
        while len(received) < count:
            received += await receiver.receive(QUEUE, 10, SECOND)
    return received


@pytest.fixture
def patient(installation: Installation) -> Installation:
    """The same, where what was received stays hidden for as long as a test takes on a machine that is busy."""
    return replace(
        installation, settings=installation.settings.model_copy(update={"visibility": 60 * SECOND})
    )


def ids(messages: list[Received]) -> list[tuple[bytes, ...]]:
    return [each.task_ids for each in messages]


async def test_without_faults_it_is_an_sqs(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    sent = message(references=3)

    assert await sender.send([sent]) == []
    received = await receive(receiver, 1)
    await receiver.delete(received)

    assert ids(received) == [sent.task_ids]
    assert not sqs.done


async def test_of_a_batch_that_is_refused_in_part_exactly_the_refused_are_answered(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    sent = [message() for _ in range(10)]
    sqs.script("SendMessageBatch", "fail_entries")

    not_sent = await sender.send(sent)

    assert not_sent
    came = ids(await receive(receiver, 10 - len(not_sent))) if len(not_sent) < 10 else []
    assert sorted(came + [each.task_ids for each in not_sent]) == sorted(each.task_ids for each in sent)


async def test_a_message_whose_receive_was_lost_comes_back_after_its_visibility(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    sent = message()
    await sender.send([sent])
    sqs.script("ReceiveMessage", "lose_reply")

    received = await receive(receiver, 1)

    assert ids(received) == [sent.task_ids]
    assert sqs.done == {"lose_reply": 1}


async def test_a_send_whose_reply_is_lost_is_sent_again_and_comes_twice_at_most(
    sqs: FaultySqs, patient: Installation
) -> None:
    sender, receiver = await patient.open_sender(), await patient.open_receiver()
    sent = message()
    await sender.send([message(queue_of("other"))])
    sqs.script("SendMessageBatch", "lose_reply")

    assert await sender.send([sent]) == []

    assert ids(await receive(receiver, 2)) == [sent.task_ids] * 2


async def test_a_send_that_nobody_answers_is_told_as_unsent(sqs: FaultySqs, sender: QueueSender) -> None:
    await sender.send([message()])
    sqs.script("SendMessageBatch", "lose_reply", times=2)

    with pytest.raises(QueueUnavailableError):
        await sender.send([message()])


@pytest.mark.long  # waits for hidden messages
async def test_a_repeated_delivery_is_two_messages_that_are_deleted_one_by_one(
    sqs: FaultySqs, patient: Installation
) -> None:
    sender, receiver = await patient.open_sender(), await patient.open_receiver()
    sent = message()
    await sender.send([sent])
    sqs.script("ReceiveMessage", "duplicate")

    received = await receive(receiver, 2)
    await receiver.delete(received)

    assert ids(received) == [sent.task_ids] * 2
    assert await receiver.receive(QUEUE, 10, 2 * SECOND) == []


@pytest.mark.long  # waits for hidden messages
async def test_a_deleted_message_that_comes_back_can_be_deleted_again(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    sent = message()
    await sender.send([sent])
    sqs.script("DeleteMessageBatch", "resurrect")
    await receiver.delete(await receive(receiver, 1))

    again = await receive(receiver, 1)
    await receiver.delete(again)

    assert ids(again) == [sent.task_ids]
    assert await receiver.receive(QUEUE, 10, 2 * SECOND) == []


async def test_a_delete_that_is_refused_in_part_leaves_messages_that_come_back(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    await sender.send([message() for _ in range(5)])
    received = await receive(receiver, 5)
    sqs.script("DeleteMessageBatch", "fail_entries")

    await receiver.delete(received)

    again = await receive(receiver, 1)
    assert set(ids(again)) <= set(ids(received))


async def test_order_and_delay_lose_nothing(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    sent = [message() for _ in range(20)]
    sqs.chances = Chances(reorder=1, delay=1)

    await sender.send(sent)
    missing = {each.task_ids for each in sent}
    async with asyncio.timeout(DEADLINE):
        while missing:
            missing -= set(ids(await receiver.receive(QUEUE, 10, SECOND)))

    assert sqs.done["reorder"]
    assert sqs.done["delay"]


@pytest.mark.parametrize("fault", ["refuse", "throttle", "lose_request"])
async def test_one_call_that_fails_is_made_again(sqs: FaultySqs, sender: QueueSender, fault: str) -> None:
    await sender.send([message()])
    sqs.script("SendMessageBatch", fault)  # type: ignore[arg-type]

    assert await sender.send([message()]) == []
    assert sqs.done == {fault: 1}


async def test_an_outage_is_said_to_be_one_and_passes(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    sent = message()
    with sqs.outage():
        with pytest.raises(QueueUnavailableError):
            await sender.send([sent])
        with pytest.raises(QueueUnavailableError):
            await receiver.receive(QUEUE, 1, SECOND)

    assert await sender.send([sent]) == []
    assert ids(await receive(receiver, 1)) == [sent.task_ids]


async def test_a_call_that_hangs_holds_up_no_other(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    await sender.send([message()])
    received = await receive(receiver, 1)
    sqs.script("SendMessageBatch", "hang")
    sending = asyncio.create_task(sender.send([message()]))
    await until(lambda: sqs.done["hang"])

    await receiver.delete(received)
    assert await sender.send([message()]) == []

    assert not sending.done()
    sqs.let_go()
    assert await sending == []


async def test_everything_at_once_delays_messages_and_loses_none(
    sqs: FaultySqs, sender: QueueSender, receiver: QueueReceiver
) -> None:
    waiting = [message() for _ in range(40)]
    everything = {each.task_ids for each in waiting}
    sqs.chances = Chances(0.1, 0.3, 0, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1)
    came: Counter[tuple[bytes, ...]] = Counter()

    async with asyncio.timeout(2 * DEADLINE):
        while waiting:
            try:
                waiting = await sender.send(waiting)
            except QueueUnavailableError:
                continue
        while set(came) != everything:
            try:
                received = await receiver.receive(QUEUE, 10, SECOND)
            except QueueUnavailableError:
                continue
            came.update(ids(received))
            await receiver.delete(received)

    assert sqs.done.total() > 5


async def test_the_store_consumer_puts_back_exactly_what_sqs_refused(
    sqs: FaultySqs, sender: QueueSender, task_states: TaskStates, store: Store, dsn: str
) -> None:
    for _ in range(40):
        await task_states.new()
    sqs.script("SendMessageBatch", "fail_entries")

    await Consumer(store, sender, StoreConsumerSettings()).run_once()

    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select status::text, count(*) from task_assoc group by status").fetchall()
    sent = await sender.depth([QUEUE])
    assert sqs.done == {"fail_entries": 1}
    assert dict(rows).get("enqueued", 0) == sent[QUEUE]
    assert dict(rows)["new"] == 40 - sent[QUEUE]


@pytest.mark.long  # waits for hidden messages
async def test_a_resurrected_message_is_refused_at_the_claim_and_deleted(
    sqs: FaultySqs,
    installation: Installation,
    sender: QueueSender,
    scripted_hsc: ScriptedHsc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        **LIVELY,
        "DULY_QUEUE_BACKEND": "sqs",
        "DULY_QUEUE_ENDPOINT_URL": sqs.endpoint_url,
        "DULY_QUEUE_PREFIX": installation.settings.prefix,
        "DULY_QUEUE_VISIBILITY": "8s",
        "DULY_CONTROLLER_DWELL_MARGIN": "2s",
        "DULY_RPC_SHUTDOWN_GRACE": "100ms",
    }.items():
        monkeypatch.setenv(name, value)
    address = f"unix:{tmp_path}/controller.sock"
    serve = build([], listen=address, hsc_address=scripted_hsc.address, frontend_address=scripted_hsc.address)
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(stop))
    channel = open_channel(address, RpcSettings().for_local_socket())
    stub = controller_stub(channel)
    attach = controller_pb2.AttachExecutorRequest(executor_id="executor", pid=os.getpid())
    attach.lambdas.add(name=QUEUE.lambda_name)
    await stub.AttachExecutor(attach, timeout=DEADLINE, wait_for_ready=True)
    ask = controller_pb2.NextWorkRequest(executor_id="executor", max_tasks=5, timeout=to_duration(2 * SECOND))
    sent = message()
    sqs.script("DeleteMessageBatch", "resurrect")
    await sender.send([sent])
    work = await stub.NextWork(ask, timeout=DEADLINE)
    scripted_hsc.refused = set(sent.task_ids)

    again = await stub.NextWork(ask, timeout=DEADLINE)

    assert [task.claim.task_id for task in work.tasks] == list(sent.task_ids)
    assert not again.tasks
    claimed = [proposal.claim.task_id for request in scripted_hsc.claims for proposal in request.proposals]
    assert claimed == list(sent.task_ids) * 2
    stop.set()
    await serving
    await channel.close()
    queue = queue_name(installation.settings.prefix, QUEUE)
    boto = sender.client.boto  # type: ignore[attr-defined]
    url = boto.get_queue_url(QueueName=queue)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = boto.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert left == dict.fromkeys(names, "0")


def test_the_same_seed_means_the_same_fate() -> None:
    fates = []
    for _ in range(2):
        sqs = FaultySqs("http://127.0.0.1:9", seed=5, chances=Chances(refuse=0.3, throttle=0.3))
        fates.append([sorted(sqs._faults_of("ReceiveMessage")) for _ in range(50)])
        sqs._server.server_close()

    assert fates[0] == fates[1]
    assert any(fates[0])


def test_what_cannot_happen_to_a_call_is_not_taken_into_the_script(sqs: FaultySqs) -> None:
    with pytest.raises(ValueError, match="resurrect cannot happen to ReceiveMessage"):
        sqs.script("ReceiveMessage", "resurrect")
