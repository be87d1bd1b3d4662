"""The tools of the runs in zones: plans follow from seeds, and times from what was recorded."""

from random import Random

import pytest

from tests.chaos.history import AckedTask, Execution, Fault, History, Limits
from tests.zones.plan import KINDS, KINDS_OF_SQS, make_plan
from tests.zones.times import flows, table

SECOND = 10**9


def test_a_seed_gives_the_same_plan_and_another_seed_another_one() -> None:
    assert make_plan(7, 60) == make_plan(7, 60)
    assert make_plan(7, 60).faults != make_plan(8, 60).faults


def test_some_seeds_together_meet_every_kind_of_fault() -> None:
    for queue, kinds in (("store", set(KINDS)), ("sqs", {*KINDS, *KINDS_OF_SQS})):
        faults = [fault for seed in range(30) for fault in make_plan(seed, 60, queue=queue).faults]

        assert {fault.kind for fault in faults} == kinds
        assert any("queue" in fault.target for fault in faults if fault.kind == "zone_link") == (
            queue == "sqs"
        )


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"no kind of fault 'flood'; there are: zone_latency, zone_loss"):
        make_plan(1, 60, only=["flood"])
    with pytest.raises(ValueError, match="the fault 'queue_cut' needs --queue sqs"):
        make_plan(1, 60, only=["queue_cut"])


def history(acked_s: dict[str, float], started_s: dict[str, float], faults: tuple[Fault, ...]) -> History:
    """Tasks by their names."""
    return History(
        seed=1,
        limits=Limits(0, 0, 0, 0),
        started_ns=0,
        healed_ns=60 * SECOND,
        finished_ns=70 * SECOND,
        acked=tuple(AckedTask(name, "work", "quick", int(at * SECOND)) for name, at in acked_s.items()),
        executions=tuple(
            Execution(name, 1, 1, 1, "1", alone=True, started_ns=int(at * SECOND))
            for name, at in started_s.items()
        ),
        transitions=(),
        final=(),
        faults=faults,
    )


def test_work_stands_still_from_a_fault_until_the_first_new_task_starts() -> None:
    fault = Fault("zone_cut", "a", 10 * SECOND, 18 * SECOND)
    steady = {f"{number}": 0.5 * number for number in range(120)}
    acked = {name: at for name, at in steady.items() if not 10 < at < 14}
    started = {name: (at if not 10 < at < 17 else 17.0) for name, at in acked.items()}

    (flow,) = flows(history(acked, started, (fault,)))

    assert flow.acked_s == 4.0
    assert flow.started_s == 7.0
    assert flow.slowest_s == 3.0
    assert not flow.busy


def test_the_window_of_a_fault_ends_with_the_next_one_and_what_a_busy_machine_did_is_marked() -> None:
    first = Fault("zone_cut", "a", 10 * SECOND, 12 * SECOND)
    second = Fault("zone_kill", "b", 15 * SECOND, 20 * SECOND)
    busy = Fault("machine_busy", "machine", 25 * SECOND, 26 * SECOND)
    steady = {f"{number}": 0.5 * number for number in range(120) if not 15 < 0.5 * number < 19}

    found = flows(history(steady, steady, (busy, second, first)))

    assert [(flow.fault.kind, flow.started_s, flow.busy) for flow in found] == [
        ("zone_cut", 0.5, False),
        ("zone_kill", 4.0, True),
    ]


def test_the_table_has_the_median_and_the_longest_time_of_each_kind() -> None:
    random = Random(1)
    faults = tuple(
        Fault("zone_cut", "a", at * SECOND, (at + 2) * SECOND) for at in random.sample(range(5, 50, 5), 3)
    )
    steady = {f"{number}": 0.25 * number for number in range(240)}

    lines = table(flows(history(steady, steady, faults)))

    assert lines[1].split() == ["zone_cut", "3", *("0.2", "/", "0.2", "s") * 2, "0.0", "/", "0.0", "s"]
