"""What encrypts, what decrypts, and what becomes of an attempt that lacks the key."""

import os
import pickle
from datetime import timedelta
from uuid import UUID

import pytest

import duly
from duly.callbacks import codec, invoke
from duly.callbacks.predecessors import Predecessors
from duly.context import TaskContext
from duly.encryption import AesGcm
from duly.tasks.task import Task
from duly.tasks.update import TaskUpdate
from duly.testing import run
from duly.time_tables.new_time_table import new_time_table, rebind_payload
from duly_wire.ids import new_task_id
from duly_wire.v1 import hsc_pb2, task_pb2, time_tables_pb2

OLD, NEW, STRANGE = (os.urandom(32) for _ in range(3))
BEFORE = AesGcm({"2026-10": OLD}, "2026-10")
NOW = AesGcm({"2026-10": OLD, "2026-11": NEW}, "2026-11")
OTHERS = AesGcm({"2026-11": STRANGE}, "2026-11")
SECRET = {"card": "4111-1111"}


def claimed(new):
    task = hsc_pb2.ClaimedTask(
        claim=hsc_pb2.Claim(task_id=new_task_id().bytes, token=bytes(16)),
        payload=new.payload,
        payload_encoding=new.payload_encoding,
        attempt=1,
        fence=1,
    )
    setattr(task, "lambda", getattr(new, "lambda"))
    return task


def app_with(its_codec, function=lambda payload: payload, name="pay", **options):
    app = duly.App(codec=its_codec)
    app.callback(name, **options)(function)
    return app


def attempt(app, task):
    callback = app.callbacks[getattr(task, "lambda")]
    context = TaskContext.for_task(task)
    return invoke.run(callback, task, context, lambda coroutine: coroutine)


def sent(its_codec, payload=SECRET, **fields):
    return duly.NewTask("pay", payload, **fields).to_proto(its_codec)


@pytest.mark.parametrize("payload", [SECRET, b"4111-1111", [1], "x", 0, False])
def test_a_payload_is_sent_encrypted_and_reaches_the_callback_as_it_was(payload):
    new = sent(NOW, payload)

    app = app_with(NOW, name="pay") if not isinstance(payload, bytes) else duly.App(codec=NOW)
    if isinstance(payload, bytes):

        @app.callback("pay", raw=True)
        def pay(payload: bytes) -> bytes:
            return payload

    result = attempt(app, claimed(new))

    assert new.payload_encoding == task_pb2.ENCODING_ENCRYPTED
    assert b"4111" not in new.payload
    assert result.result_encoding == task_pb2.ENCODING_ENCRYPTED
    told = task_pb2.Task(
        task_id=str(UUID(bytes=result.claim.task_id)),
        result=result.result,
        result_encoding=result.result_encoding,
        priority=3,
        status=6,
    )
    assert Task.from_proto(told, NOW).result == payload


def test_none_has_no_bytes_and_is_not_encrypted():
    new = sent(NOW, None)

    assert (new.payload, new.payload_encoding) == (b"", task_pb2.ENCODING_JSON)


def test_the_same_key_and_payload_give_the_same_bytes_and_another_task_gives_others():
    first, again, other = (sent(NOW, idempotency_key=key) for key in ("k", "k", "l"))

    assert first.payload == again.payload
    assert first.payload != other.payload
    assert sent(NOW).payload != sent(NOW).payload


def test_an_old_key_decrypts_what_it_encrypted():
    assert attempt(app_with(NOW), claimed(sent(BEFORE))).outcome == hsc_pb2.OUTCOME_SUCCESS


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (None, "give Client"),
        (BEFORE, "there is no such key here; there are 2026-10"),
        (OTHERS, "this is another key"),
    ],
)
def test_a_worker_without_the_key_fails_the_attempt_and_names_the_key(workers, said):
    result = attempt(app_with(workers, on_exception="fatal"), claimed(sent(NOW)))

    assert result.outcome == hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    assert result.failure_kind == task_pb2.FAILURE_KIND_NOT_DECRYPTED
    assert "encrypted (key 2026-11)" in result.failure_message
    assert said in result.failure_message


def test_a_payload_of_another_lambda_and_a_changed_one_are_not_decrypted():
    moved, changed = claimed(sent(NOW)), claimed(sent(NOW))
    setattr(moved, "lambda", "refund")
    changed.payload = changed.payload[:-1] + bytes([changed.payload[-1] ^ 1])
    app = app_with(NOW)
    app.callback("refund")(lambda payload: payload)

    results = [attempt(app, each) for each in (moved, changed)]

    assert {each.failure_kind for each in results} == {task_pb2.FAILURE_KIND_NOT_DECRYPTED}


@pytest.mark.parametrize(
    "data", [b"", b"\xd0", b"\xd0\x01", b"\xd0\x01\x07", codec.head_of("2026-11") + b"x" * 40]
)
def test_bytes_that_are_cut_off_are_not_decrypted(data):
    with pytest.raises(duly.DecryptionError):
        NOW.decrypt(data, b"")


def test_a_worker_with_a_codec_takes_payloads_that_are_not_encrypted():
    assert attempt(app_with(NOW), claimed(sent(None))).outcome == hsc_pb2.OUTCOME_SUCCESS


def test_checkpoints_and_tasks_of_a_callback_are_encrypted_and_read_back():
    kept = []

    def work(payload, ctx):
        ctx.checkpoint({"row": 7})
        ctx.schedule("pay", SECRET)
        return ctx.checkpointed

    app = app_with(NOW, work)
    task = claimed(sent(NOW))
    keep = lambda _, data: kept.append(data)  # noqa: E731
    first = invoke.run(app.callbacks["pay"], task, TaskContext.for_task(task, keep=keep), print)
    task.checkpoint = kept[0]
    second = attempt(app, task)

    assert codec.key_id_of(kept[0]) == "2026-11"
    assert first.children[0].payload_encoding == task_pb2.ENCODING_ENCRYPTED
    bound_to = codec.result_of(task.claim.task_id)
    assert codec.decode(*codec.reveal(NOW, second.result, second.result_encoding, bound_to)) == {"row": 7}


def test_a_checkpoint_of_an_unknown_key_fails_the_attempt_when_it_is_read():
    task = claimed(sent(NOW))
    task.checkpoint = OTHERS.encrypt(b"\x01{}", codec.checkpoint_of(task.claim.task_id), b"")
    app = app_with(NOW, lambda payload, ctx: ctx.checkpointed, on_exception="fatal")

    result = attempt(app, task)

    assert result.outcome == hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    assert result.failure_kind == task_pb2.FAILURE_KIND_NOT_DECRYPTED


def test_results_of_predecessors_are_decrypted():
    task_id = new_task_id().bytes
    data, encoding = codec.protect(NOW, codec_bytes({"disks": 2}), codec.result_of(task_id), "any")
    place = hsc_pb2.GraphPlace()
    place.predecessors.add(label="disks", task_id=task_id, result=data, result_encoding=encoding)

    assert Predecessors.from_proto(place, NOW)["disks"].result == {"disks": 2}
    with pytest.raises(duly.DecryptionError, match="key 2026-11"):
        _ = Predecessors.from_proto(place)["disks"].result


def codec_bytes(value):
    return duly.callbacks.payload.encode(value)


def test_nodes_of_graphs_are_encrypted_once_they_are_sent():
    graph = duly.NewGraph("discovery")
    graph.task("pay", SECRET)

    (node,) = graph.to_proto(NOW).nodes
    (stored,) = graph.to_definition(NOW)

    assert node.task.payload_encoding == stored.task.payload_encoding == task_pb2.ENCODING_ENCRYPTED
    assert graph.to_proto(NOW) == graph.to_proto(NOW)
    assert graph.to_definition(NOW) == graph.to_definition(NOW)
    assert attempt(app_with(NOW), claimed(stored.task)).outcome == hsc_pb2.OUTCOME_SUCCESS


def test_an_update_is_encrypted_for_the_tasks_lambda():
    task_id = str(new_task_id())

    update = TaskUpdate(task_id, payload=SECRET).to_proto(NOW, "pay")

    task = sent(NOW)
    task.payload, task.payload_encoding = update.payload, update.payload_encoding
    assert attempt(app_with(NOW), claimed(task)).outcome == hsc_pb2.OUTCOME_SUCCESS


def test_a_time_table_keeps_its_payload_when_its_lambda_changes():
    before = new_time_table("nightly", "pay", SECRET, NOW, every=timedelta(hours=1))
    table = time_tables_pb2.TimeTable(name="nightly", **{"lambda": "refund"})

    assert rebind_payload(before, table, NOW)

    revealed = codec.reveal(NOW, table.payload, table.payload_encoding, codec.payload_of("refund"))
    assert codec.decode(*revealed) == SECRET
    assert str(codec.value_or_sign(table.payload, table.payload_encoding)) == "encrypted (key 2026-11)"


def test_a_task_is_read_without_the_key_and_its_payload_names_the_key():
    new = sent(NOW)
    told = task_pb2.Task(payload=new.payload, payload_encoding=new.payload_encoding, priority=3, status=1)

    task = Task.from_proto(told)

    with pytest.raises(duly.DecryptionError) as raised:
        _ = task.payload
    assert raised.value.key_id == "2026-11"


def test_a_result_counts_with_what_encryption_adds():
    app = app_with(NOW, lambda _: "x" * 98, result_limit=100)

    result = attempt(app, claimed(sent(NOW)))

    assert result.failure_kind == task_pb2.FAILURE_KIND_BAD_RESULT


def test_the_test_helper_shows_values_and_not_encrypted_bytes():
    def work(payload, ctx):
        ctx.checkpoint([1])
        ctx.schedule("pay", SECRET)
        return payload

    found = run(app_with(NOW, work), "pay", SECRET)

    assert (found.result, found.checkpoints, found.scheduled[0].payload) == (SECRET, ([1],), SECRET)


@pytest.mark.parametrize(
    ("keys", "current", "said"),
    [
        ({"a": b"short"}, "a", "must be 32 bytes"),
        ({"a b": OLD}, "a b", "not the name of a key"),
        ({"k" * 65: OLD}, "k" * 65, "not the name of a key"),
        ({"a": OLD}, "b", "there is no key 'b'"),
        ({}, "b", "there are none"),
    ],
)
def test_keys_that_cannot_work_are_refused(keys, current, said):
    with pytest.raises(ValueError, match=said):
        AesGcm(keys, current)


def test_keys_do_not_show_and_are_not_pickled():
    assert repr(NOW) == "AesGcm(keys=['2026-10', '2026-11'], current='2026-11')"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(NOW)


def test_a_task_that_was_read_holds_no_keys():
    new = sent(NOW)
    told = task_pb2.Task(
        task_id=new.task_id, payload=new.payload, payload_encoding=new.payload_encoding, priority=3, status=1
    )
    setattr(told, "lambda", "pay")

    task = Task.from_proto(told, NOW)

    assert pickle.loads(pickle.dumps(task)).payload == SECRET  # noqa: S301
