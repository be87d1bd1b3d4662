"""What the SQS queue promises beyond the contract."""

import asyncio
import sys
import textwrap
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from duly_core.errors import QueueUnavailableError, SettingsError
from duly_core.queues.settings import QueueSettings
from duly_core.queues.sqs import depth
from duly_core.queues.sqs.names import queue_name
from duly_core.queues.sqs.sender import SqsSender
from tests.fixtures.queues import NO_WAIT, SECOND, message, queue_of
from tests.fixtures.waiting import until

pytestmark = pytest.mark.sqs

DEADLINE = 10


@pytest.fixture
def installation(clocked_sqs_queue):
    return clocked_sqs_queue


def url_of(sender, installation, queue):
    name = queue_name(installation.settings.prefix, queue)
    return sender.client.boto.get_queue_url(QueueName=name)["QueueUrl"]


def on_answer(sender, operation, change):
    """Change SQS's answers to an operation before the sender sees them."""
    sender.client.boto.meta.events.register(f"after-call.sqs.{operation}", lambda parsed, **_: change(parsed))


async def test_messages_that_sqs_refuses_are_answered_and_the_others_are_sent(sender, receiver):
    sent = [message() for _ in range(10)]

    def refuse_three(answer):
        refused, answer["Successful"] = answer["Successful"][:3], answer["Successful"][3:]
        answer["Failed"] = [
            {"Id": each["Id"], "Code": "InternalError", "SenderFault": False} for each in refused
        ]

    on_answer(sender, "SendMessageBatch", refuse_three)

    assert await sender.send(sent) == sent[:3]


async def test_messages_that_sqs_does_not_speak_of_count_as_not_sent(sender):
    sent = [message() for _ in range(2)]
    on_answer(sender, "SendMessageBatch", lambda answer: answer["Successful"].pop())

    assert await sender.send(sent) == sent[1:]


async def test_a_queue_that_fails_does_not_hold_up_the_others(monkeypatch, sender, receiver):
    good, bad = message(queue_of("good")), message(queue_of("bad"))
    call = sender.client.call

    async def refuse_bad(method, **parameters):
        if "-bad-" in parameters.get("QueueUrl", parameters.get("QueueName", "")):
            raise QueueUnavailableError("access denied")
        return await call(method, **parameters)

    monkeypatch.setattr(sender.client, "call", refuse_bad)

    assert await sender.send([bad, good]) == [bad]
    assert await sender.depth([good.queue, bad.queue]) == {good.queue: 1, bad.queue: depth.FULL}
    with pytest.raises(QueueUnavailableError, match="access denied"):
        await sender.send([bad])


async def test_a_foreign_body_is_deleted_and_not_delivered(installation, sender, receiver):
    sent = message()
    await sender.send([sent])
    url = url_of(sender, installation, sent.queue)
    sender.client.boto.send_message(QueueUrl=url, MessageBody="drop table task")

    with capture_logs() as logs:
        received = await receiver.receive(sent.queue, 10, SECOND)
    again = await installation.receive_after_visibility(receiver, sent.queue)

    assert [each.task_ids for each in received + again] == [sent.task_ids] * 2
    assert "foreign message dropped" in [log["event"] for log in logs]
    assert "drop table" not in str(logs)


async def test_a_queue_that_somebody_deleted_is_made_again(installation, sender, receiver):
    sent = message()
    await sender.send([message()])
    await receiver.receive(sent.queue, 1, SECOND)
    sender.client.boto.delete_queue(QueueUrl=url_of(sender, installation, sent.queue))

    assert await sender.depth([sent.queue]) == {sent.queue: 0}
    assert await sender.send([sent]) == []
    assert [each.task_ids for each in await receiver.receive(sent.queue, 1, SECOND)] == [sent.task_ids]


async def test_a_new_queue_is_made_once_though_many_batches_go_to_it(sender):
    await sender.send([message() for _ in range(50)])

    assert sender.client.calls == {"CreateQueue": 1, "SendMessageBatch": 5}


async def test_a_queue_made_with_other_settings_gets_the_new_ones(installation, sender):
    sent = message()
    await sender.send([sent])
    settings = installation.settings.model_copy(update={"retention": 3600 * SECOND})
    changed = await replace(installation, settings=settings).open_sender()

    assert await changed.send([sent]) == []

    attributes = sender.client.boto.get_queue_attributes(
        QueueUrl=url_of(sender, installation, sent.queue), AttributeNames=["All"]
    )["Attributes"]
    assert attributes["MessageRetentionPeriod"] == "3600"


async def test_depth_is_asked_once_for_many_questions_in_a_row(sender):
    await sender.send([message(references=5)])

    depths = [await sender.depth([queue_of()]) for _ in range(3)]

    assert depths == [{queue_of(): 5}] * 3
    assert sender.client.calls["GetQueueAttributes"] == 1


async def test_depth_counts_what_was_sent_since_the_last_answer(sender):
    await sender.send([message(references=5)])
    await sender.depth([queue_of()])

    await sender.send([message(references=5)])

    assert await sender.depth([queue_of()]) == {queue_of(): 10}
    assert sender.client.calls["GetQueueAttributes"] == 1


async def test_forty_queues_are_polled_at_once_and_a_delete_need_not_wait_for_them(sender, receiver):
    done = message(queue_of("done"))
    await sender.send([done])
    received = await receiver.receive(done.queue, 1, SECOND)
    queues = [queue_of(f"lambda-{number}") for number in range(40)]
    polls = [asyncio.create_task(receiver.receive(queue, 1, 20 * SECOND)) for queue in queues]

    async with asyncio.timeout(DEADLINE):
        await receiver.delete(received)
        await sender.send([message(queue) for queue in queues])
        answers = await asyncio.gather(*polls)

    assert [len(answer) for answer in answers] == [1] * 40


async def test_a_process_may_end_while_a_long_poll_waits(installation):
    program = textwrap.dedent(f"""
        import asyncio
        from datetime import timedelta
        from duly_core.queues.sqs.receiver import SqsReceiver
        from duly_core.queues.settings import QueueSettings
        from duly_wire.enums import Priority
        from duly_core.lambdas.names import QueueKey

        async def main():
            settings = QueueSettings(backend="sqs", endpoint_url={installation.settings.endpoint_url!r})
            receiver = await SqsReceiver.open(settings)
            queue = QueueKey("endless", Priority.LOW)
            polling = asyncio.create_task(receiver.receive(queue, 1, timedelta(seconds=20)))
            while not receiver.client.calls["ReceiveMessage"]:
                await asyncio.sleep(0)
            await receiver.close()
            print(await polling, flush=True)

        asyncio.run(main())
    """)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )

    output, _ = await asyncio.wait_for(child.communicate(), DEADLINE)

    assert output.endswith(b"[]\n")
    assert child.returncode == 0


async def test_missing_credentials_are_named_as_the_reason(installation):
    aws = installation.settings.model_copy(update={"endpoint_url": ""})
    receiver = await replace(installation, settings=aws).open_receiver()

    with pytest.raises(QueueUnavailableError, match="no AWS credentials were found"):
        await receiver.receive(queue_of(), 1, NO_WAIT)


@pytest.mark.parametrize("wrong", [{"prefix": "not allowed"}, {"endpoint_url": "no-url"}])
async def test_unusable_settings_are_refused_at_once(wrong):
    with pytest.raises(SettingsError):
        await SqsSender.open(QueueSettings(backend="sqs", **wrong))


async def test_what_a_cancelled_poll_receives_is_given_back(sender, receiver):
    sent = message()
    await receiver.receive(sent.queue, 1, NO_WAIT)
    polling = asyncio.create_task(receiver.receive(sent.queue, 1, 20 * SECOND))
    await until(lambda: receiver.client.calls["ReceiveMessage"] == 2)
    polling.cancel()
    await sender.send([sent])

    await until(lambda: receiver.client.calls["ChangeMessageVisibilityBatch"])  # begun: it comes meanwhile

    assert [each.task_ids for each in await receiver.receive(sent.queue, 1, 10 * SECOND)] == [sent.task_ids]
