import pickle
import threading
from datetime import UTC, datetime, timedelta

import pytest

import duly
from duly_wire.enums import FailureKind, Outcome, Priority, TaskStatus
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, hsc_pb2, task_pb2

SECOND = timedelta(seconds=1)


@pytest.fixture
def told():
    return []


@pytest.fixture
def context(told):
    task = hsc_pb2.ClaimedTask(
        claim=hsc_pb2.Claim(task_id=bytes(15) + b"\x07", token=bytes(16)),
        priority=task_pb2.PRIORITY_LOW,
        attempt=2,
        fence=9,
        due_at={"seconds": 1_900_000_000, "nanos": 500_000_000},
        max_runtime={"seconds": 60},
        **{"lambda": "mail.send"},
    )
    return duly.TaskContext.for_task(task, lambda *progress: told.append(progress))


def test_a_timeout_that_is_no_timedelta_is_refused_where_it_is_given(context):
    with pytest.raises(TypeError, match=r"must be a timedelta, not float: timedelta\(seconds=4.0\)"):
        context.wait_cancelled(4.0)


def test_it_tells_which_attempt_of_which_task_it_is(context):
    assert context.task_id == "00000000-0000-0000-0000-000000000007"
    assert (context.lambda_name, context.priority) == ("mail.send", duly.Priority.LOW)
    assert (context.attempt, context.fence) == (2, 9)
    assert context.due_at == datetime.fromtimestamp(1_900_000_000.5, UTC)
    assert SECOND < context.deadline - datetime.now(UTC) <= 60 * SECOND


def test_progress_goes_to_whoever_reports_it(context, told):
    context.progress(0)
    context.progress(0.5, "half")

    assert told == [(0.0, ""), (0.5, "half")]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_progress_is_a_fraction(context, told, fraction):
    with pytest.raises(ValueError, match="from 0 to 1"):
        context.progress(fraction)

    assert told == []


def test_a_cancellation_is_seen_asked_about_and_waited_for(context):
    assert not context.cancelled
    assert not context.wait_cancelled(timedelta(0))
    context.raise_if_cancelled()

    threading.Thread(target=context.request_cancel).start()

    assert context.wait_cancelled(10 * SECOND)
    assert context.cancelled
    with pytest.raises(duly.Cancelled):
        context.raise_if_cancelled()


@pytest.mark.parametrize("bad", [-SECOND, timedelta.max])
def test_a_delay_that_is_none_is_refused_where_it_is_made(bad):
    with pytest.raises(ValueError, match="must be between"):
        duly.Snooze(bad)
    with pytest.raises(ValueError, match="must be between"):
        duly.RetriableFailure("busy", retry_after=bad)
    with pytest.raises(TypeError, match="must be a timedelta, not int"):
        duly.Snooze(5)


@pytest.mark.parametrize(
    "outcome",
    [duly.RetriableFailure(message="m", retry_after=SECOND), duly.FatalFailure("m"), duly.Snooze(SECOND)],
)
def test_an_outcome_compares_by_what_it_says_and_survives_another_process(outcome):
    assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301 (what multiprocessing does)
    assert outcome != duly.FatalFailure("other")


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix"),
    [
        (Priority, task_pb2.Priority, "PRIORITY_"),
        (TaskStatus, task_pb2.TaskStatus, "TASK_STATUS_"),
        (FailureKind, task_pb2.FailureKind, "FAILURE_KIND_"),
        (Outcome, hsc_pb2.Outcome, "OUTCOME_"),
    ],
)
def test_the_enums_are_those_of_the_wire(ours, theirs, prefix):
    wire = {name.removeprefix(prefix): number for name, number in theirs.items() if number}

    assert {member.name: member.value for member in ours} == wire


def test_the_final_statuses_are_the_last_four():
    final = [status.name for status in TaskStatus if status.is_final]

    assert final == ["SUCCESS", "FATAL_FAILURE", "CANCELLED", "DROPPED"]


def test_an_interruption_ends_the_wait_for_a_cancel_and_is_none(context):
    threading.Thread(target=context.note_interruption).start()

    assert not context.wait_cancelled(10 * SECOND)
    assert context.interrupted
    assert not context.cancelled


def kept_by(callback_value, *, checkpoint=b""):
    """The context of a task, and what it keeps."""
    kept = []
    task = hsc_pb2.ClaimedTask(claim=hsc_pb2.Claim(task_id=bytes(16), token=bytes(16)), checkpoint=checkpoint)
    ctx = duly.TaskContext.for_task(task, None, lambda task_id, data: kept.append((task_id, data)))
    if callback_value is not ...:
        ctx.checkpoint(callback_value)
    return ctx, kept


def test_a_checkpoint_is_handed_over_at_once_as_json() -> None:
    assert kept_by({"row": 7})[1] == [(bytes(16), b'{"row":7}')]
    assert kept_by(None)[1] == [(bytes(16), b"null")]


def test_what_was_kept_before_is_given_decoded() -> None:
    assert kept_by(..., checkpoint=b'{"row":7}')[0].checkpointed == {"row": 7}
    assert kept_by(...)[0].checkpointed is None


@pytest.mark.parametrize(
    ("value", "error"),
    [("x" * 65_536, duly.CheckpointTooLargeError), (b"bytes", duly.EncodingError), ({1}, duly.EncodingError)],
)
def test_what_cannot_be_kept_is_refused_in_the_callback(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        kept_by(value)


def node_context() -> duly.TaskContext:
    """That of a node of a graph."""
    task = hsc_pb2.ClaimedTask(claim=hsc_pb2.Claim(task_id=new_task_id().bytes))
    task.graph.graph_id, task.graph.label = new_task_id().bytes, "a"
    return duly.TaskContext.for_task(task)


def test_a_node_that_is_added_is_sent_with_what_it_waits_for() -> None:
    ctx = node_context()
    first = ctx.add_node("x", {"n": 1}, label="b", max_runtime=timedelta(seconds=5))
    ctx.add_node("y", label="c", after=duly.any_of(first, ctx.node("a").finished))

    assert ctx.nodes is not None
    b, c = ctx.nodes.values()
    assert (b.label, b.task.task_id, b.max_runtime.seconds) == ("b", first.task_id, 5)
    assert [(edge.label, edge.condition) for edge in c.waits_for] == [("b", 1), ("a", 3)]
    assert c.any_of


def test_nodes_are_refused_outside_of_a_graph_and_under_a_label_that_was_used() -> None:
    ctx = node_context()
    ctx.add_node("x", label="b")

    with pytest.raises(duly.InvalidTaskError, match="'b' was added before"):
        ctx.add_node("x", label="b")
    with pytest.raises(duly.InvalidTaskError, match="not a node of a graph"):
        kept_by(...)[0].add_node("x", label="b")


@pytest.mark.parametrize("label", ["", "a\0", "é" * 65])
def test_labels_that_no_node_can_have_are_refused_at_once(label: str) -> None:
    ctx = node_context()

    with pytest.raises(duly.InvalidTaskError, match="must be 1 to 128 bytes without NUL"):
        ctx.add_node("x", label=label)
    with pytest.raises(duly.InvalidTaskError, match="must be 1 to 128 bytes without NUL"):
        ctx.node(label)


def test_what_nodes_wait_for_is_bounded() -> None:
    ctx = node_context()
    ctx.add_node("x", label="sum", after=[ctx.node(f"n{number}") for number in range(10_000)])

    with pytest.raises(duly.InvalidTaskError, match="10,000 nodes together"):
        ctx.add_node("x", label="more", after=ctx.node("n0"))


def test_nodes_count_as_tasks_that_an_attempt_schedules() -> None:
    ctx = node_context()
    for number in range(999):
        ctx.add_node("x", label=f"n{number}")
    ctx.schedule("x")

    with pytest.raises(duly.InvalidTaskError, match="1,000 tasks"):
        ctx.add_node("x", label="more")


def test_a_scheduled_task_has_its_id_at_once_and_is_bounded_in_number_and_size() -> None:
    ctx, _ = kept_by(...)
    made = [ctx.schedule("mail.send", {"n": n}) for n in range(1000)]

    assert ctx.children is not None
    assert [child.task_id for child in ctx.children] == [each.task_id for each in made]
    with pytest.raises(duly.InvalidTaskError, match="1,000 tasks"):
        ctx.schedule("mail.send")
    large, _ = kept_by(...)
    for _ in range(4):
        large.schedule("mail.send", b"x" * 1_000_000)
    with pytest.raises(duly.InvalidTaskError, match="4,194,304 bytes"):
        large.schedule("mail.send", b"x" * 1_000_000)


def test_a_scheduled_task_has_a_unique_key_that_neither_replaces_nor_stands_beside_a_session() -> None:
    ctx, _ = kept_by(...)
    debounce = duly.Debounce("k", wait=timedelta(seconds=1), at_most=timedelta(seconds=2))

    ctx.schedule("mail.send", unique="user:7")
    refused = {
        "unique": {"unique": ""},
        "unique.on_conflict": {"unique": duly.Unique("k", on_conflict=duly.OnConflict.REPLACE)},
        "session": {"unique": "k", "session": "s"},
        "debounce": {"debounce": debounce},
    }
    for field, options in refused.items():
        with pytest.raises(duly.InvalidTaskError) as caught:
            ctx.schedule("mail.send", **options)
        assert caught.value.field == field

    assert [frontend_pb2.Unique.FromString(each.unique).key for each in ctx.children or ()] == ["user:7"]
