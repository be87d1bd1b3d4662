"""What an Executor holds, from NextWork's answer to the HSC's definite word."""

import pytest

from duly.v1 import callback_pb2, hsc_pb2
from duly_executor.holdings import Holdings
from duly_executor.leases import Leases
from tests.fixtures.host import claimed

LENGTH = 1_000


@pytest.fixture
def holdings() -> Holdings:
    return Holdings(Leases(LENGTH))


def beaten(holdings: Holdings) -> list[hsc_pb2.HeartbeatItem]:
    return [item for request in holdings.heartbeat_requests("executor") for item in request.items]


def again(task: hsc_pb2.ClaimedTask) -> hsc_pb2.ClaimedTask:
    """The same task under a new claim."""
    anew = claimed()
    anew.claim.task_id = task.claim.task_id
    return anew


def progress(task: hsc_pb2.ClaimedTask, fraction: float, note: str = "") -> callback_pb2.CallbackProgress:
    return callback_pb2.CallbackProgress(task_id=task.claim.task_id, progress=fraction, note=note)


def test_a_claim_that_comes_in_is_held_beaten_for_and_has_a_deadline(holdings: Holdings) -> None:
    task = claimed()

    assert holdings.add([task], sent_boot_ns=5) == 5 + LENGTH

    assert [item.claim for item in beaten(holdings)] == [task.claim]
    assert holdings.leases.earliest() == 5 + LENGTH
    assert holdings.unfinished() == 1


def test_a_claim_whose_result_is_on_its_way_is_still_beaten_for(holdings: Holdings) -> None:
    task = claimed()
    holdings.add([task], 0)

    assert holdings.report(task.claim.task_id) is not None

    assert [item.claim for item in beaten(holdings)] == [task.claim]
    assert holdings.unfinished() == 0
    assert not holdings.is_running(task.claim.task_id)


def test_an_end_is_reported_once(holdings: Holdings) -> None:
    task = claimed()
    holdings.add([task], 0)

    holdings.report(task.claim.task_id)

    assert holdings.report(task.claim.task_id) is None
    assert holdings.report(b"never held") is None


def test_a_settled_claim_is_let_go_of_and_told_once(holdings: Holdings) -> None:
    task, other = claimed(), claimed()
    holdings.add([task, other], 0)

    holdings.settle([task.claim])
    holdings.settle([task.claim])

    assert [item.claim for item in beaten(holdings)] == [other.claim]
    assert holdings.take_settled() == [task.claim]
    assert holdings.take_settled() == []
    assert len(holdings.leases) == 1


def test_what_the_controller_may_not_have_heard_is_told_again(holdings: Holdings) -> None:
    task = claimed()
    holdings.add([task], 0)
    holdings.settle([task.claim])

    holdings.settled_untold(holdings.take_settled())

    assert holdings.take_settled() == [task.claim]


def test_the_end_of_an_old_claim_does_not_settle_a_new_one_of_the_same_task(holdings: Holdings) -> None:
    old = claimed()
    new = again(old)
    holdings.add([old], 0)
    holdings.report(old.claim.task_id)
    holdings.add([new], 10)

    holdings.settle([old.claim])

    assert [item.claim for item in beaten(holdings)] == [new.claim]
    assert holdings.leases.earliest() == 10 + LENGTH
    assert holdings.is_current(new.claim)
    assert not holdings.is_current(old.claim)


def test_of_a_task_that_is_held_again_the_old_claim_is_told_to_be_settled(holdings: Holdings) -> None:
    task = claimed()
    holdings.add([task], 0)
    holdings.settle([task.claim])

    holdings.add([again(task)], 10)

    assert holdings.take_settled() == [task.claim]


def test_the_newest_progress_goes_with_one_heartbeat(holdings: Holdings) -> None:
    task = claimed()
    holdings.add([task], 0)

    holdings.note_progress([progress(task, 0.25, "first"), progress(task, 0.5, "second")])

    (item,) = beaten(holdings)
    assert (item.progress, item.progress_note) == (0.5, "second")
    (next_item,) = beaten(holdings)
    assert not next_item.HasField("progress")


def test_progress_of_what_does_not_run_is_forgotten(holdings: Holdings) -> None:
    task, stranger = claimed(), claimed()
    holdings.add([task], 0)
    holdings.note_progress([progress(task, 0.5)])

    holdings.report(task.claim.task_id)
    holdings.note_progress([progress(task, 0.75), progress(stranger, 0.5)])

    (item,) = beaten(holdings)
    assert not item.HasField("progress")


def test_a_note_is_made_to_fit(holdings: Holdings) -> None:
    task = claimed()
    holdings.add([task], 0)

    holdings.note_progress([progress(task, 0.5, "\x00" + "é" * 1_000)])

    (item,) = beaten(holdings)
    assert item.progress_note == "é" * 512


def test_many_claims_are_beaten_for_in_several_calls(holdings: Holdings) -> None:
    tasks = [claimed() for _ in range(2_500)]
    holdings.add(tasks, 0)

    requests = holdings.heartbeat_requests("executor")

    assert [len(request.items) for request in requests] == [1_000, 1_000, 500]
    assert {request.holder for request in requests} == {"executor"}


def test_only_the_first_claims_wake_who_looks_after_them(holdings: Holdings) -> None:
    first = claimed()
    holdings.add([first], 0)
    assert holdings.came.is_set()
    holdings.came.clear()

    holdings.add([claimed()], 0)

    assert not holdings.came.is_set()
