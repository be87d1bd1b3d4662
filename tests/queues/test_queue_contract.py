"""What Duly asks of a queue, asked of SQS and of the fake in memory."""

import asyncio
from itertools import chain
from time import monotonic

import pytest

from duly_core.errors import QueueUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.queues.message import batches
from duly_core.queues.port import Outgoing, QueueReceiver, Received
from duly_wire.enums import Priority
from tests.fixtures.queues import NO_WAIT, SECOND, AnyInstallation, message, queue_of

DEADLINE = 5


@pytest.fixture(params=["memory", pytest.param("clocked_sqs", marks=pytest.mark.sqs, id="sqs")])
def installation(request: pytest.FixtureRequest) -> AnyInstallation:
    """SQS, and the fake that stands for it elsewhere."""
    chosen: AnyInstallation = request.getfixturevalue(f"{request.param}_queue")
    return chosen


def ids(messages: list[Received]) -> list[tuple[bytes, ...]]:
    return [received.task_ids for received in messages]


async def drain(receiver: QueueReceiver, queue: QueueKey) -> list[Received]:
    """Take and delete until nothing is left."""
    drained = []
    while received := await receiver.receive(queue, 10, NO_WAIT):
        await receiver.delete(received)
        drained += received
    return drained


async def test_what_is_sent_is_received_with_its_ids(sender, receiver):
    sent = message(references=100)

    not_sent = await sender.send([sent])

    received = await receiver.receive(sent.queue, 10, SECOND)
    assert not_sent == []
    assert [(each.queue, each.task_ids) for each in received] == [(sent.queue, sent.task_ids)]


async def test_a_received_message_is_hidden_until_its_visibility_ends(installation, sender, receiver):
    sent = message()
    await sender.send([sent])
    await receiver.receive(sent.queue, 10, SECOND)

    meanwhile = await receiver.receive(sent.queue, 10, NO_WAIT)
    afterwards = await installation.receive_after_visibility(receiver, sent.queue)

    assert meanwhile == []
    assert ids(afterwards) == [sent.task_ids]


async def test_a_deleted_message_never_comes_again(installation, sender, receiver):
    sent = message()
    await sender.send([sent])

    await receiver.delete(await receiver.receive(sent.queue, 10, SECOND))

    assert await installation.receive_after_visibility(receiver, sent.queue) == []


async def test_a_message_that_was_given_back_comes_at_once(sender, receiver):
    sent = message()
    await sender.send([sent])

    await receiver.give_back(await receiver.receive(sent.queue, 10, SECOND))

    assert ids(await receiver.receive(sent.queue, 10, NO_WAIT)) == [sent.task_ids]


async def test_a_stale_receipt_does_no_harm(installation, sender, receiver):
    sent = message()
    await sender.send([sent])
    stale = await receiver.receive(sent.queue, 10, SECOND)
    fresh = await installation.receive_after_visibility(receiver, sent.queue)

    await receiver.delete(fresh)
    await receiver.delete(stale)
    await receiver.give_back(stale)

    assert await installation.receive_after_visibility(receiver, sent.queue) == []


async def test_a_long_poll_wakes_when_a_message_is_sent_meanwhile(sender, receiver):
    sent = message()
    polling = asyncio.create_task(receiver.receive(sent.queue, 10, 20 * SECOND))
    await sender.depth([sent.queue])  # a round trip, in which the poll has begun to wait

    await sender.send([sent])

    assert ids(await asyncio.wait_for(polling, DEADLINE)) == [sent.task_ids]


async def test_a_message_given_back_wakes_another_host(installation, sender, receiver):
    sent = message()
    await sender.send([sent])
    taken = await receiver.receive(sent.queue, 10, SECOND)
    other = await installation.open_receiver()
    polling = asyncio.create_task(other.receive(sent.queue, 10, 20 * SECOND))
    await sender.depth([sent.queue])

    await receiver.give_back(taken)

    assert ids(await asyncio.wait_for(polling, DEADLINE)) == [sent.task_ids]


async def test_a_long_poll_of_an_empty_queue_ends_after_its_wait(receiver):
    begun = monotonic()

    received = await receiver.receive(queue_of(), 10, SECOND)

    assert received == []
    assert 0.9 < monotonic() - begun < DEADLINE


async def test_queues_are_apart_by_lambda_and_by_priority(sender, receiver):
    queues = [QueueKey(name, priority) for name in ("mail.send", "mail-send") for priority in Priority]
    sent = {queue: message(queue) for queue in queues}

    await sender.send(list(sent.values()))

    for queue in queues:
        assert ids(await receiver.receive(queue, 10, SECOND)) == [sent[queue].task_ids]


async def test_depth_counts_references_hidden_ones_too(sender, receiver):
    busy, idle = queue_of("busy"), queue_of("idle")
    await sender.send([message(busy, references=2) for _ in range(3)])

    before = await sender.depth([busy, idle])
    taken = await receiver.receive(busy, 1, SECOND)
    hidden = await sender.depth([busy])
    await receiver.delete(taken)
    await receiver.receive(idle, 1, SECOND)  # an answer may be a quarter of a second old

    assert before == {busy: 6, idle: 0}
    assert hidden == {busy: 6}
    assert await sender.depth([busy]) == {busy: 4}


async def test_a_thousand_references_go_in_few_messages_and_all_arrive_once(sender, receiver):
    sent = message(references=1_000)
    packed = batches({sent.queue: sent.task_ids})

    await sender.send(packed)

    received = await drain(receiver, sent.queue)
    assert len(received) == len(packed) == 10
    assert sorted(chain.from_iterable(ids(received))) == sorted(sent.task_ids)


async def test_a_queue_yields_no_more_messages_than_asked_for(sender, receiver):
    await sender.send([message() for _ in range(5)])

    assert len(await receiver.receive(queue_of(), 3, SECOND)) == 3


async def test_what_one_receiver_holds_is_hidden_from_another(installation, sender, receiver):
    sent = [message() for _ in range(20)]
    await sender.send(sent)
    other = await installation.open_receiver()

    mine = await receiver.receive(queue_of(), 7, SECOND)
    others = await drain(other, queue_of())

    assert 0 < len(mine) <= 7
    assert sorted(ids(mine) + ids(others)) == sorted(each.task_ids for each in sent)


async def test_receivers_that_take_at_once_miss_no_message(installation, sender, receiver):
    sent = [message() for _ in range(60)]
    await sender.send(sent)
    other = await installation.open_receiver()

    mine, others = await asyncio.gather(drain(receiver, queue_of()), drain(other, queue_of()))

    # a message may come twice from SQS
    assert set(ids(mine) + ids(others)) == {each.task_ids for each in sent}


async def test_sending_nothing_is_allowed(sender, receiver):
    assert await sender.send([]) == []
    assert await sender.depth([]) == {}
    await receiver.delete([])
    await receiver.give_back([])


async def test_messages_of_many_queues_are_deleted_together(sender, receiver):
    queues = [queue_of(f"lambda-{number}") for number in range(3)]
    await sender.send([message(queue) for queue in queues])
    received = [await receiver.receive(queue, 1, SECOND) for queue in queues]

    await receiver.delete(list(chain.from_iterable(received)))

    assert await sender.depth(queues) == dict.fromkeys(queues, 0)


async def test_a_queue_that_cannot_be_reached_says_so_in_bounded_time(installation):
    nowhere = installation.unreachable()
    sender, receiver = await nowhere.open_sender(), await nowhere.open_receiver()
    asked = [
        sender.send([message()]),
        sender.depth([queue_of()]),
        receiver.receive(queue_of(), 1, SECOND),
    ]

    answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 15)

    assert [type(answer) for answer in answers] == [QueueUnavailableError] * 3
    assert all("127.0.0.1" in str(answer) for answer in answers)


async def test_done_with_messages_of_a_queue_that_cannot_be_reached_fail_quietly(installation):
    receiver = await installation.unreachable().open_receiver()
    received = [Received(queue_of(), message().task_ids, "1 2026-01-01T00:00:00+00:00")]

    await asyncio.wait_for(asyncio.gather(receiver.delete(received), receiver.give_back(received)), 15)


async def test_closing_wakes_waiting_receives_within_a_second(sender, receiver):
    polls = [asyncio.create_task(receiver.receive(queue_of(f"l{n}"), 1, 20 * SECOND)) for n in range(8)]
    await sender.depth([queue_of()])

    async with asyncio.timeout(1):
        await receiver.close()
        answers = await asyncio.gather(*polls)

    assert answers == [[]] * 8
    with pytest.raises(QueueUnavailableError, match="closed"):
        await receiver.receive(queue_of(), 1, NO_WAIT)


async def test_closing_twice_is_allowed(sender, receiver):
    await sender.close()
    await sender.close()
    await receiver.close()
    await receiver.close()


async def test_an_abandoned_receive_loses_no_message(installation, sender, receiver):
    sent = message()
    polling = asyncio.create_task(receiver.receive(sent.queue, 1, 20 * SECOND))
    await sender.depth([sent.queue])
    polling.cancel()
    await asyncio.wait({polling})

    await sender.send([sent])

    received = await receiver.receive(sent.queue, 1, SECOND)
    received = received or await installation.receive_after_visibility(receiver, sent.queue)
    assert ids(received) == [sent.task_ids]


async def test_messages_keep_their_order_of_ids(sender, receiver):
    sent = Outgoing(queue_of(), tuple(bytes([n]) * 16 for n in range(100)))

    await sender.send([sent])

    assert ids(await receiver.receive(sent.queue, 1, SECOND)) == [sent.task_ids]
