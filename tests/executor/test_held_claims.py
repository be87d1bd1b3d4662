"""What an Executor holds, from NextWork's answer to the HSC's definite word."""

import pytest

from duly_executor.claims.ledger import HeldClaims
from duly_wire.v1 import callback_pb2, hsc_pb2
from tests.fixtures.host import claimed


@pytest.fixture
def held_claims() -> HeldClaims:
    return HeldClaims()


def beaten(held_claims: HeldClaims) -> list[hsc_pb2.HeartbeatItem]:
    return [item for request in held_claims.heartbeat_requests("executor") for item in request.items]


def again(task: hsc_pb2.ClaimedTask) -> hsc_pb2.ClaimedTask:
    """The same task under a new claim."""
    anew = claimed()
    anew.claim.task_id = task.claim.task_id
    return anew


def progress(task: hsc_pb2.ClaimedTask, fraction: float, note: str = "") -> callback_pb2.CallbackProgress:
    return callback_pb2.CallbackProgress(task_id=task.claim.task_id, progress=fraction, note=note)


def test_a_claim_that_comes_in_is_held_beaten_for_and_has_a_deadline(held_claims: HeldClaims) -> None:
    task = claimed()

    held_claims.add([task], 5)

    assert [item.claim for item in beaten(held_claims)] == [task.claim]
    assert held_claims.earliest_deadline() == 5
    assert held_claims.unfinished() == 1


def test_a_claim_whose_result_is_on_its_way_is_still_beaten_for(held_claims: HeldClaims) -> None:
    task = claimed()
    held_claims.add([task], 0)

    assert held_claims.report(task.claim.task_id) is not None

    assert [item.claim for item in beaten(held_claims)] == [task.claim]
    assert held_claims.unfinished() == 0
    assert not held_claims.is_running(task.claim.task_id)


def test_an_end_is_reported_once(held_claims: HeldClaims) -> None:
    task = claimed()
    held_claims.add([task], 0)

    held_claims.report(task.claim.task_id)

    assert held_claims.report(task.claim.task_id) is None
    assert held_claims.report(b"never held") is None


def test_a_settled_claim_is_let_go_of_and_may_be_settled_twice(held_claims: HeldClaims) -> None:
    task, other = claimed(), claimed()
    held_claims.add([task], 0)
    held_claims.add([other], 10)

    held_claims.settle([task.claim])
    held_claims.settle([task.claim])

    assert [item.claim for item in beaten(held_claims)] == [other.claim]
    assert held_claims.earliest_deadline() == 10


def test_the_end_of_an_old_claim_does_not_settle_a_new_one_of_the_same_task(held_claims: HeldClaims) -> None:
    old = claimed()
    new = again(old)
    held_claims.add([old], 0)
    held_claims.report(old.claim.task_id)
    held_claims.add([new], 10)

    held_claims.settle([old.claim])

    assert [item.claim for item in beaten(held_claims)] == [new.claim]
    assert held_claims.earliest_deadline() == 10
    assert held_claims.is_current(new.claim)
    assert not held_claims.is_current(old.claim)


def test_the_newest_progress_goes_with_one_heartbeat(held_claims: HeldClaims) -> None:
    task = claimed()
    held_claims.add([task], 0)

    held_claims.note_progress([progress(task, 0.25, "first"), progress(task, 0.5, "second")])

    (item,) = beaten(held_claims)
    assert (item.progress, item.progress_note) == (0.5, "second")
    (next_item,) = beaten(held_claims)
    assert not next_item.HasField("progress")


def test_progress_of_what_does_not_run_is_forgotten(held_claims: HeldClaims) -> None:
    task, stranger = claimed(), claimed()
    held_claims.add([task], 0)
    held_claims.note_progress([progress(task, 0.5)])

    held_claims.report(task.claim.task_id)
    held_claims.note_progress([progress(task, 0.75), progress(stranger, 0.5)])

    (item,) = beaten(held_claims)
    assert not item.HasField("progress")


@pytest.mark.parametrize("told", [float("nan"), float("inf"), -0.1, 1.1])
def test_what_is_no_progress_is_kept_from_the_heartbeat(held_claims: HeldClaims, told: float) -> None:
    task = claimed()
    held_claims.add([task], 0)

    held_claims.note_progress([progress(task, told)])

    (item,) = beaten(held_claims)
    assert not item.HasField("progress")


def test_a_note_is_made_to_fit(held_claims: HeldClaims) -> None:
    task = claimed()
    held_claims.add([task], 0)

    held_claims.note_progress([progress(task, 0.5, "\x00" + "é" * 1_000)])

    (item,) = beaten(held_claims)
    assert item.progress_note == "é" * 512


def test_many_claims_are_beaten_for_in_several_calls(held_claims: HeldClaims) -> None:
    tasks = [claimed() for _ in range(2_500)]
    held_claims.add(tasks, 0)

    requests = held_claims.heartbeat_requests("executor")

    assert [len(request.items) for request in requests] == [1_000, 1_000, 500]
    assert {request.holder for request in requests} == {"executor"}


def test_only_the_first_claims_wake_who_looks_after_them(held_claims: HeldClaims) -> None:
    first = claimed()
    held_claims.add([first], 0)
    assert held_claims.came.is_set()
    held_claims.came.clear()

    held_claims.add([claimed()], 0)

    assert not held_claims.came.is_set()


# ---- deadlines -------------------------------------------------------------------------------------------


@pytest.fixture
def two(held_claims: HeldClaims) -> list[bytes]:
    """Tasks whose deadlines are 100 and 90."""
    tasks = [claimed(), claimed()]
    held_claims.add(tasks[:1], 100)
    held_claims.add(tasks[1:], 90)
    return [task.claim.task_id for task in tasks]


def test_without_claims_nothing_limits_the_process(held_claims: HeldClaims) -> None:
    assert held_claims.earliest_deadline() is None


def test_the_earliest_deadline_of_all_is_that_of_the_process(
    held_claims: HeldClaims, two: list[bytes]
) -> None:
    assert held_claims.earliest_deadline() == 90
    assert held_claims.start_before(two[:1]) == 100


def test_an_acknowledged_heartbeat_sets_the_deadline(held_claims: HeldClaims, two: list[bytes]) -> None:
    held_claims.renew(two, 115)

    assert held_claims.earliest_deadline() == 115


def test_a_claim_that_a_heartbeat_did_not_name_keeps_its_own_deadline(
    held_claims: HeldClaims, two: list[bytes]
) -> None:
    held_claims.renew(two[:1], 115)

    assert held_claims.earliest_deadline() == 90


def test_an_answer_that_was_overtaken_takes_nothing_back(held_claims: HeldClaims, two: list[bytes]) -> None:
    held_claims.renew(two, 130)

    held_claims.renew(two, 115)

    assert held_claims.start_before(two) == 130


def test_what_no_longer_limits_the_process_is_not_brought_back_by_a_heartbeat(
    held_claims: HeldClaims, two: list[bytes]
) -> None:
    held_claims.end_deadlines(two)
    held_claims.end_deadlines(two)

    held_claims.renew(two, 115)

    assert held_claims.earliest_deadline() is None
    assert len(held_claims) == 2


def checkpoint(task, data):
    return callback_pb2.CallbackCheckpoint(task_id=task.claim.task_id, checkpoint=data)


def sent(held_claims):
    """The checkpoints of the next heartbeat."""
    items = [item for request in held_claims.heartbeat_requests("host") for item in request.items]
    return {item.claim.task_id: item.checkpoint for item in items if item.checkpoint}, items


def test_a_checkpoint_goes_with_each_heartbeat_until_one_is_answered():
    held_claims, task = HeldClaims(), claimed()
    held_claims.add([task], 0)
    held_claims.note_checkpoints([checkpoint(task, b"1"), checkpoint(task, b"2")])

    first, _ = sent(held_claims)
    second, items = sent(held_claims)
    held_claims.checkpoints_kept(items)

    assert first == second == {task.claim.task_id: b"2"}
    assert sent(held_claims)[0] == {}


def test_a_newer_checkpoint_is_not_taken_for_the_one_that_was_answered():
    held_claims, task = HeldClaims(), claimed()
    held_claims.add([task], 0)
    held_claims.note_checkpoints([checkpoint(task, b"1")])
    _, items = sent(held_claims)

    held_claims.note_checkpoints([checkpoint(task, b"2")])
    held_claims.checkpoints_kept(items)

    assert sent(held_claims)[0] == {task.claim.task_id: b"2"}


def test_the_last_checkpoint_comes_with_the_report_and_is_forgotten_with_it():
    held_claims, task = HeldClaims(), claimed()
    held_claims.add([task], 0)
    held_claims.note_checkpoints([checkpoint(task, b"1")])
    held_claims.checkpoints_kept(sent(held_claims)[1])

    held = held_claims.report(task.claim.task_id)
    held_claims.note_checkpoints([checkpoint(task, b"late")])

    assert held.checkpoint == b"1"
    assert sent(held_claims)[0] == {}


def test_a_heartbeat_has_a_bound_on_checkpoints_and_the_rest_goes_with_the_next():
    held_claims, tasks = HeldClaims(), [claimed() for _ in range(20)]
    held_claims.add(tasks, 0)
    held_claims.note_checkpoints(checkpoint(task, b"x" * 65_536) for task in tasks)

    first, items = sent(held_claims)
    held_claims.checkpoints_kept(items)

    assert (len(first), len(sent(held_claims)[0])) == (16, 4)


def test_what_is_larger_than_the_hsc_takes_is_not_kept():
    held_claims, task = HeldClaims(), claimed()
    held_claims.add([task], 0)

    held_claims.note_checkpoints([checkpoint(task, b"x" * 65_537)])

    assert sent(held_claims)[0] == {}
