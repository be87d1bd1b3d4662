"""Packing of task ids."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.lambdas.names import QueueKey
from duly_core.queues.message import ForeignBodyError, batches, pack, unpack
from duly_core.queues.port import MAX_REFERENCES
from duly_wire.enums import Priority

ID = st.binary(min_size=16, max_size=16)
IDS = st.lists(ID, min_size=1, max_size=MAX_REFERENCES)
QUEUE = QueueKey("mail.send", Priority.NORMAL)
OTHER = QueueKey("mail.send", Priority.LOW)


def some_ids(count):
    return [number.to_bytes(16) for number in range(count)]


@given(IDS)
def test_what_was_packed_is_unpacked(ids):
    assert unpack(pack(ids)) == tuple(ids)


def test_a_body_says_what_it_is():
    assert pack(some_ids(1)) == "duly1:AAAAAAAAAAAAAAAAAAAAAA=="


@pytest.mark.parametrize(
    "ids", [[], some_ids(MAX_REFERENCES + 1), [b"short"]], ids=["none", "too many", "no id"]
)
def test_what_is_no_message_is_not_packed(ids):
    with pytest.raises(ValueError, match=r"a message carries|a task id has"):
        pack(ids)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(16),
        b"duly1:",
        b"duly1:" + bytes(15),
        b"duly1:" + bytes(17),
        b"duly1:" + bytes(16 * (MAX_REFERENCES + 1)),
        b"duly2:" + bytes(16),
    ],
)
def test_a_body_that_is_not_ours_is_refused(body):
    with pytest.raises(ForeignBodyError):
        unpack(body.decode()[:6] + base64.b64encode(body[6:]).decode())


@pytest.mark.parametrize("body", ["", "duly1:", "duly1:AAAA", "duly1:?" + "A" * 21 + "==", "duly1:é", "{}"])
def test_a_text_that_is_not_ours_is_refused(body):
    with pytest.raises(ForeignBodyError):
        unpack(body)


def test_a_refusal_never_repeats_the_body():
    with pytest.raises(ForeignBodyError) as refusal:
        unpack("duly1:secret")

    assert "secret" not in str(refusal.value)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ForeignBodyError):
        unpack("duly1:" + text)


@pytest.mark.parametrize(
    ("references", "sizes"),
    [
        (0, []),
        (1, [1]),
        (8, [1] * 8),
        (9, [2, 2, 2, 2, 1]),
        (80, [10] * 8),
        (1_000, [100] * 10),
        (1_050, [100] * 10 + [50]),
    ],
)
def test_messages_are_small_when_few_wait_and_full_when_many_do(references, sizes):
    packed = batches({QUEUE: some_ids(references)})

    assert [len(message.task_ids) for message in packed] == sizes


@given(st.lists(ID, max_size=500), st.lists(ID, max_size=500))
def test_every_reference_goes_into_one_message_of_its_queue_in_order(ids, others):
    packed = batches({QUEUE: ids, OTHER: others})

    for queue, expected in ((QUEUE, ids), (OTHER, others)):
        assert [
            task_id for message in packed if message.queue == queue for task_id in message.task_ids
        ] == expected
    assert all(1 <= len(message.task_ids) <= MAX_REFERENCES for message in packed)


def test_ten_full_messages_are_far_from_what_one_call_to_sqs_may_carry():
    assert 10 * len(pack(some_ids(MAX_REFERENCES))) < 256 * 1024 / 10
