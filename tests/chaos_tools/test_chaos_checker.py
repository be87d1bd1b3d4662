"""The judge of chaos runs: sound histories pass, and each violation that is planted is found, and only that."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly_wire.enums import FailureKind, SessionPolicy
from tests.chaos import saved_history
from tests.chaos.checker import check
from tests.chaos.checker.limits import is_put_off
from tests.chaos.checker.reach import endangers
from tests.chaos.history import (
    SECOND,
    AddressUse,
    EventRow,
    Execution,
    Fault,
    FileLeft,
    FileRead,
    FileSent,
    FileUse,
    FinalRow,
    History,
    Leftover,
    Sample,
    Seen,
    SessionRow,
    StaleWrite,
    TimeTableRow,
    Told,
    UseRow,
    WatchStretch,
)
from tests.fixtures.chaos_stories import LIMITS, STEP, Story, Tape

POISON = {"kind": "poison", "legal": frozenset({"fatal_failure"}), "crashes_itself": True, "poison": True}
FAILING = {"kind": "failing", "legal": frozenset({"fatal_failure"})}
CANCELLED = {"kind": "cancelled", "cancel_asked": True, "least_executions": 0}


def rules(history: History) -> list[str]:
    return [violation.rule for violation in check(history).violations]


def again(task: Story) -> Story:
    """Killed by a fault while it ran; the Store Consumer took it back."""
    task.schedule().enqueue().claim().start().beat()
    task.tape.fault()
    return task.fall_silent().reclaim()


def poisoned(tape: Tape) -> Story:
    task = tape.task(**POISON).schedule()
    for _ in range(2):
        task.enqueue().claim().start().retry(crashed=True)
    return task.enqueue().claim().start().exhaust(crashed=True)


def eventful(tape: Tape) -> None:
    """One task of every fate."""
    tape.task(plain=True).schedule().enqueue().succeed()
    again(tape.task(plain=True)).claim().start().end().finish()
    again(tape.task(plain=True)).claim().release().enqueue().succeed()
    failing = tape.task(**FAILING).schedule().enqueue().claim().start().end("raised").retry()
    failing.enqueue().claim().start().end("fatal").exhaust()
    tape.task(**FAILING).schedule().enqueue().claim().start().end("fatal").finish("fatal_failure", 1)
    tape.task().schedule().enqueue().claim().start().end("snoozed").snooze().enqueue().succeed()
    poisoned(tape)
    tape.task(**POISON).schedule().enqueue().claim().start().retry(
        crashed=True
    ).enqueue().claim().start().retry(
        crashed=True
    ).enqueue().claim().start().fall_silent().quarantine_silent()
    tape.task(**CANCELLED, cancel_answered="cancelled").schedule().enqueue().cancel()
    asked = (
        tape.task(**CANCELLED, cancel_answered="requested")
        .schedule()
        .enqueue()
        .claim()
        .start()
        .request_cancel()
    )
    asked.end("cancelled").finish("cancelled")
    tape.task(
        **CANCELLED, cancel_answered="requested"
    ).schedule().enqueue().claim().request_cancel().fall_silent().cancel_silent()
    crashing = (
        tape.task(**CANCELLED, crashes_itself=True).schedule().enqueue().claim().start().request_cancel()
    )
    crashing._end("cancelled", crashes=1, last_token=crashing.last.token)
    tape.task(expires_ns=tape.now, least_executions=0).schedule().enqueue().expire()
    # one that another in its process took along
    killer, victim = tape.task(**POISON | {"max_crashes": 1}), tape.task(plain=True)
    killer.schedule().enqueue().claim()
    victim.schedule().enqueue().claim().start("300-1")
    killer.start("300-1").exhaust(crashed=True)
    victim.retry(crashed=True).enqueue().claim().start("301-1").end().finish()
    # a dead letter that is redriven
    dead = tape.task(**FAILING | {"legal": frozenset({"success"})}).schedule().enqueue().claim().start()
    dead.end("fatal").finish("fatal_failure", 1).redrive().enqueue().succeed()
    in_session(tape)
    failed_session(tape)
    in_graph(tape)
    ticking(tape)
    changed(tape)
    tape.task(purge_asked=True).schedule().enqueue().succeed().row = None
    limited(tape)
    tape.fault("stop")


def in_session(tape: Tape) -> tuple[Story, Story]:
    """Two tasks of a session, one after the other."""
    first, second = pair(tape)
    first.enqueue().succeed()
    second.promote().enqueue().succeed()
    return first, second


def pair(tape: Tape, **policy: SessionPolicy) -> tuple[Story, Story]:
    """Two tasks of a session that nobody has begun."""
    first = tape.task(session="vlan").join(1, waits=False, **policy)
    return first, tape.task(session="vlan").join(2)


def limited(tape: Tape) -> list[Story]:
    """Two that take all units, a third that is parked meanwhile, and one that names another key."""
    both = "database/=1 tenant/a=1"
    tasks = [tape.task(resources=each).schedule() for each in (both, "database/=1", both, "tenant/b=1")]
    first, second, third, fourth = tasks
    first.enqueue()
    second.enqueue()
    third.park("database/")
    fourth.enqueue().succeed()
    first.succeed()
    third.promote().enqueue().succeed()
    second.succeed()
    return tasks


def failed_session(tape: Tape) -> tuple[Story, Story]:
    """A task that waits when one fails ends with it; one that comes later runs."""
    failing = tape.task(**FAILING, session="rest").join(1, policy=SessionPolicy.FAIL_REST, waits=False)
    waiting = tape.task(session="rest").join(2)
    failing.enqueue().claim().start().end("fatal").finish("fatal_failure", 1)
    later = tape.task(session="rest").join(3)
    waiting.doom().end_doomed()
    later.promote().enqueue().succeed()
    return failing, waiting


def in_graph(tape: Tape, name: str = "g") -> tuple[Story, Story, Story, Story]:
    """A node runs after another, a third is skipped, and so is the one behind it."""
    first = tape.node(name)
    second, alarm = tape.node(name, first), tape.node(name, first, fires_on=2)
    last = tape.node(name, second, alarm)
    first.enqueue().succeed()
    second.fire(first)
    alarm.skip(first)
    last.skip(alarm)
    second.enqueue().succeed()
    alarm.end_skipped()
    last.end_skipped()
    added = tape.node(name, second)
    added.spoil(0, open_edges=0, after="new", trigger_in_ns=0)
    added.enqueue().succeed()
    tape.end_graph(name, succeeded=3, skipped=2)
    return first, second, alarm, last


def ticking(tape: Tape) -> list[Story]:
    """Three ticks of a time table, and two of one that leaves out what overlaps."""
    tape.time_tables += [
        TimeTableRow("all", SECOND, 5 * SECOND, 8 * SECOND),
        TimeTableRow("skip", SECOND, 5 * SECOND, 8 * SECOND, overlap=2),
    ]
    stories = [tape.tick("all", number) for number in (5, 6, 7)]
    stories += [tape.tick("skip", 5).enqueue().succeed(), tape.tick("skip", 7)]
    for story in stories:
        if story.last.after == "new":
            story.enqueue().succeed()
    return stories


def changed(tape: Tape) -> Story:
    """Changed twice before it runs."""
    task = tape.task(priority=2).schedule().change(1).change(2, 4)
    task.enqueue().succeed().spoil_execution(0, edit=2)
    return task


def test_a_sound_history_with_every_fate_passes():
    tape = Tape()
    eventful(tape)

    verdict = check(tape.history())

    assert [str(violation) for violation in verdict.violations] == []
    assert verdict.holds
    assert verdict.figures["tasks"] == len(tape.tasks)
    assert verdict.figures["reclaims"] == 2


@pytest.mark.parametrize(
    ("kind", "target", "explains"),
    [
        ("kill_callback", "host-1", True),
        ("kill_callback?", "host-1", True),
        ("pause_host", "host-2", False),
        ("net_delay", "host-1>hsc-2", True),
        ("net_delay", "host-2>hsc-1", False),
        ("net_blackhole", "host-1>queue", False),
        ("net_blackhole", "client>frontend-1", False),
        ("net_blackhole", "frontend-1>postgres", True),
        ("kill_frontend", "frontend-1", False),
        ("pause_store_consumer", "store-consumer-1", True),
        ("kill_hsc", "hsc-1", True),
        ("sqs_outage", "queue", False),
        ("notification_lose?", "postgres", False),
        ("clock_jump", "postgres", True),
        ("postgres_lock", "postgres", True),
        ("machine_busy", "machine", True),
    ],
)
def test_a_fault_explains_a_crash_where_it_can_reach_it(kind, target, explains):
    assert endangers(Fault(kind, target, 1, 2), "host-1") is explains


def test_where_hosts_are_given_work_by_the_store_a_claim_begins_and_ends_at_what_is_due():
    tape = Tape()
    task = tape.task(plain=True).schedule().claim().start().beat()
    tape.fault()
    task.fall_silent().reclaim_due().claim().claim_again().start().end("raised").retry().succeed()

    verdict = check(tape.history(queue="store"))

    assert [str(violation) for violation in verdict.violations] == []
    assert verdict.figures["reclaims"] == 1


def test_a_statement_during_which_the_clock_was_moved_is_not_judged_by_it():
    tape = Tape()
    tape.task().schedule().enqueue().succeed()
    task = tape.task().schedule().enqueue()
    task.spoil(1, trigger_in_ns=LIMITS.enqueue_timeout_ns + 12 * SECOND)
    moved_ns = task.last.at_ns - STEP
    task.succeed()

    assert rules(tape.history()) == ["C7.trigger"]
    assert rules(tape.history(clock_moves=((moved_ns, moved_ns + 1),))) == []


def test_the_clock_may_be_moved_between_the_two_looks_of_a_write_though_their_clocks_differ():
    """Seed 900003: a jump back by a minute, which the audit had seen, seemed to come after its write."""
    tape = Tape()
    task = tape.task().schedule().enqueue()
    task.spoil(1, trigger_in_ns=LIMITS.enqueue_timeout_ns + 60 * SECOND)
    written_ns = task.last.at_ns
    task.succeed()

    def moved(begun_ns):
        return ((begun_ns, begun_ns + STEP),)

    drift_ns = LIMITS.clock_slack_ns // 2
    assert rules(tape.history(clock_moves=moved(written_ns + drift_ns))) == []
    assert rules(tape.history(clock_moves=moved(written_ns + SECOND))) == ["C7.trigger"]


def test_what_a_machine_had_no_time_for_is_not_lost_and_not_late():
    tape = Tape()
    tape.task().schedule().enqueue().wait(LIMITS.liveness_ns).succeed()
    tape.task().schedule()
    late = {"healed_ns": 0, "finished_ns": tape.now + 2 * LIMITS.liveness_ns}
    busy = replace(LIMITS, starved_ns=LIMITS.most_starved_ns + 1)

    verdict = check(tape.history(**late, limits=busy))

    assert rules(tape.history(**late)) == ["C6.late", "C1.lost"]
    assert verdict.violations == ()
    assert "the machine had no time for the system" in verdict.inconclusive[0]


def test_a_change_that_comes_while_others_are_parked_does_not_end_their_transaction():
    """It locks no resource: what takes the units may be written after it, in the transaction that parks."""
    tape = Tape()
    taker, parked, changed = (tape.task(resources="database/=2").schedule() for _ in range(3))
    parked.park("database/")
    changed.change(1)
    taker.enqueue()
    taker.spoil(-1, txid=parked.last.txid)
    taker.succeed()
    parked.promote().enqueue().succeed()
    changed.enqueue().succeed()
    changed.spoil_execution(0, edit=1)

    held = rules(tape.history())
    put_off = replace(changed.moves[1], trigger_in_ns=SECOND, due_in_ns=0)

    assert held == []
    assert is_put_off(put_off)
    assert not is_put_off(changed.moves[1])


def passed_over(tape: Tape) -> Story:
    """One that fits stays parked, for somebody has locked it when the other ends."""
    task, other = (tape.task(resources="database/=2").schedule() for _ in range(2))
    task.enqueue()
    other.park("database/")
    task.succeed()
    tape.mark("database/", waits=True, txid=task.last.txid)
    return other


def test_what_somebody_has_locked_may_stay_parked_until_the_mark_is_taken_off():
    """Seed 2025 of 2026-11-23."""
    tape = Tape()
    other = passed_over(tape)
    tape.mark("database/", waits=False)
    other.promote().enqueue().succeed()

    assert rules(tape.history()) == []


@pytest.mark.parametrize("due_at_ns", [2 * SECOND, 0], ids=["behind", "ahead"])
def test_what_was_parked_while_the_clock_was_ahead_keeps_its_place(due_at_ns):
    """Seed 2302 of 2026-11-23: what is first, and too heavy, lets nothing pass."""
    tape = Tape()
    taker, heavy, light = (tape.task(resources=f"database/={weight}").schedule() for weight in (1, 2, 1))
    taker.enqueue()
    heavy.park("database/").spoil(-1, due_at_ns=SECOND)
    light.park("database/").spoil(-1, due_in_ns=-12 * SECOND, due_at_ns=due_at_ns)

    assert ("C12.idle" in rules(tape.history())) == (due_at_ns == 0)


def test_a_task_of_a_session_is_late_from_the_end_of_the_one_before_on():
    tape = Tape()
    first, second = pair(tape)
    history = tape.history()
    first.wait(LIMITS.liveness_ns - SECOND).enqueue().succeed()
    second.wait(LIMITS.liveness_ns - SECOND).promote().enqueue().succeed()
    in_time = tape.history(healed_ns=history.healed_ns)
    second.spoil(-1, at_ns=tape.now + 2 * SECOND)
    late = tape.history(healed_ns=history.healed_ns)

    assert rules(in_time) == []
    assert rules(late) == ["C6.late"]


def test_what_never_ends_is_told_once_and_not_of_those_that_wait_for_it():
    tape = Tape()
    first, second = pair(tape)
    history = tape.history(sessions=(SessionRow("vlan", 2, first.acked.task_id),))

    assert [each.task_id for each in check(history).violations] == [first.acked.task_id]
    assert second.last.after == "waiting"


def test_what_is_to_end_with_a_failure_may_be_cancelled_before_it_has():
    tape = Tape()
    _, doomed = failed_session(tape)
    doomed.spoil(-1, after="cancelled")
    doomed.spoil_row(status="cancelled", failure_kind=0)

    assert "C10.rest" in rules(tape.history())
    doomed.expect(**CANCELLED)
    assert rules(tape.history()) == []


def test_a_session_of_which_the_tasks_join_in_one_transaction_has_the_order_of_its_places():
    tape = Tape()
    first, second = in_session(tape)
    one, another = first.moves[0].sequence, second.moves[0].sequence
    first.spoil(0, sequence=another, txid=1)
    second.spoil(0, sequence=one, txid=1)

    assert rules(tape.history()) == []


def test_what_keeps_its_process_from_answering_explains_who_ran_beside_it():
    tape = Tape()
    hog, victim = tape.task(kind="gil", breaks_process=True), tape.task()
    hog.schedule().enqueue().claim().start("300-1")
    victim.schedule().enqueue().claim().start("300-1")
    hog.end().finish()
    victim.retry(crashed=True).enqueue().succeed()

    assert check(tape.history(faults=())).violations == ()


# ---- one violation each ----------------------------------------------------------------------------------

PLANTED: dict[str, Callable[[Tape], History | None]] = {}
"""By the rule and how it is broken: adds to the tape what breaks it; may give the history itself."""


def plants(name: str) -> Callable[[Callable[[Tape], History | None]], None]:
    def keep(function: Callable[[Tape], History | None]) -> None:
        assert name not in PLANTED
        PLANTED[name] = function

    return keep


@plants("C0.journal: a line in the middle that is no record")
def _(tape):
    return tape.history(unreadable=("7-1.jsonl:3: ValueError",))


@plants("C1.lost: acknowledged and not in the tables")
def _(tape):
    tape.task()


@plants("C1.lost: never final")
def _(tape):
    tape.task().schedule().enqueue()


@plants("C1.lost: the assoc went and no end was written")
def _(tape):
    task = tape.task(legal=frozenset({"success"})).schedule()
    task.spoil_row(assoc_status="")
    task.row = replace(task.row, assoc_status="new")


@plants("C1.lost: stored and never final, though never acknowledged")
def _(tape):
    task = tape.task().schedule()
    acked = tuple(each.acked for each in tape.tasks if each is not task)
    return tape.history(acked=acked)


@plants("C1.unknown: ran, and is not stored")
def _(tape):
    stray = Execution("stray", 1, 1, 7, "7-1", True, tape.now, tape.now + 1, "success")
    history = tape.history()
    return replace(history, executions=(*history.executions, stray))


@plants("C1.vanished: written, and not in the tables")
def _(tape):
    task = tape.task().schedule()
    task.row = None
    acked = tuple(each.acked for each in tape.tasks if each is not task)
    return tape.history(acked=acked)


@plants("C1.unproven: a success and no execution")
def _(tape):
    tape.task(least_executions=0).schedule().enqueue().claim().finish()


@plants("C1.unproven: a success whose execution has no end")
def _(tape):
    tape.task().schedule().enqueue().claim().start().finish()


@plants("C1.unproven: only an execution of an earlier claim ended well")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end()
    tape.fault()
    task.fall_silent().reclaim().claim().start().end("raised").finish()


@plants("C1.ending: failed though it never fails")
def _(tape):
    tape.task().schedule().enqueue().claim().start().end("fatal").finish("fatal_failure", 1)


@plants("C1.ending: succeeded though it always fails")
def _(tape):
    tape.task(**FAILING).schedule().enqueue().succeed()


@plants("C1.ending: cancelled and nobody asked")
def _(tape):
    tape.task(least_executions=0).schedule().enqueue().cancel()


@plants("C1.ending: expired without an expiry")
def _(tape):
    tape.task(least_executions=0).schedule().enqueue().expire()


@plants("C1.cancel: CancelTask said cancelled, and it ran on")
def _(tape):
    tape.task(**CANCELLED, cancel_answered="cancelled").schedule().enqueue().succeed()


@plants("C1.executions: ended without having run often enough")
def _(tape):
    tape.task(least_executions=2).schedule().enqueue().succeed()


@plants("C2.times: begins one nanosecond before the one before ended")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end("raised").retry()
    task.enqueue().claim().start().end().finish()
    task.spoil_execution(0, ended_ns=task.executions[1].started_ns + 1)


@plants("C2.lock: shown by the lock alone")
def _(tape):
    task = again(tape.task()).claim().start().end().finish()
    task.spoil_execution(1, alone=False)


@plants("C2.unended: the process wrote its journal after the next began")
def _(tape):
    task = again(tape.task()).claim().start().end().finish()
    other = tape.task().schedule().enqueue().claim().start(task.executions[0].process)
    other.end().finish()


@plants("C2.unended: the process was seen after the next began")
def _(tape):
    tape.now += SECOND
    task = tape.task().schedule().enqueue().claim().start("400-1").beat()
    tape.fault()
    task.fall_silent().reclaim().claim().start("401-1")
    seen = Seen(400, "400-1", tape.now + 1)
    task.end().finish()
    return tape.history(seen=(seen,))


@plants("C2.lease: went on after its claim was taken back")
def _(tape):
    task = tape.task(least_executions=1).schedule().enqueue().claim().start().beat()
    tape.fault()
    task.fall_silent().reclaim().end()
    task.claim().start().end().finish()


@plants("C2.lease: its process was seen after its claim was taken back")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start("400-1").beat()
    tape.fault()
    task.fall_silent().reclaim()
    seen = Seen(400, "400-1", tape.now + STEP // 2 + LIMITS.clock_slack_ns)
    task.claim().start("401-1").end().finish()
    return tape.history(seen=(seen,))


@plants("C3.stale: a finish with an old token is accepted after a reclaim")
def _(tape):
    task = again(tape.task()).claim().start().end().finish()
    task.spoil(-1, last_token=task.moves[2].token)


@plants("C3.stale: a retry with an old token is accepted")
def _(tape):
    task = again(tape.task()).claim().start().end("raised").retry()
    task.spoil(-1, last_token=task.moves[2].token)
    task.enqueue().succeed()


@plants("C3.replayed: a heartbeat with an old token renews a lease")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    renewed = StaleWrite(tape.now, "update task_assoc", task.acked.task_id, "next_trigger_at 1 -> 2")
    return tape.history(stale_writes=(renewed,))


@plants("C3.token: a heartbeat changes the token")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    task.spoil(3, token="other")
    task.spoil(4, token_before="other", last_token="other")


@plants("C3.token: a claim without a token")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end().finish()
    task.spoil(2, token="")
    task.spoil(3, token_before="", last_token="")


@plants("C3.reused: a token that was the task's before")
def _(tape):
    task = again(tape.task()).claim().start().end().finish()
    first = task.moves[2].token
    task.spoil(-2, token=first)
    task.spoil(-1, token_before=first, last_token=first)


@plants("C3.fence: a claim leaves the fence as it was")
def _(tape):
    task = tape.task().schedule().enqueue().claim()
    task.spoil(2, fence=0)
    task.start().end().finish()
    task.spoil_execution(0, fence=0)
    task.row = FinalRow(task.acked.task_id, "success", "", 0, 0, 0)


@plants("C3.fence: a heartbeat changes the fence")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().beat()
    task.spoil(3, fence=2)
    task.end().finish()


@plants("C3.order: an execution of an earlier claim begins later")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end("raised").retry()
    task.enqueue().claim().start().end().finish()
    first, second = task.executions
    task.executions = [
        replace(second, started_ns=second.started_ns + STEP // 4, ended_ns=second.started_ns + STEP // 2)
    ]
    late = second.started_ns + STEP - 1
    task.executions.append(replace(first, started_ns=late, ended_ns=late))
    return replace_rule(tape.history(), "C2.lease")


@plants("C3.early: taken back before its time was over")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start()
    tape.fault()
    task.reclaim().claim().start().end().finish()


@plants("C3.unclaimed: ran with a fence that nobody was given")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    extra = replace(task.executions[0], fence=2, started_ns=tape.now, ended_ns=tape.now, process="9-9")
    task.executions.append(extra)


@plants("C3.unclaimed: ran before its claim")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    task.spoil_execution(0, started_ns=task.moves[2].at_ns - SECOND)


@plants("C4.move: an arrow that is not drawn")
def _(tape):
    task = tape.task().schedule()
    task._move("processing", trigger=SECOND, token="t", fence=1)
    task.start().end().finish()


@plants("C4.way: enqueued where there is no queue")
def _(tape):
    own = Tape()  # what else there is has a queue
    own.task().schedule().enqueue().succeed()
    return own.history(queue="store")


@plants("C4.way: claimed past the queue")
def _(tape):
    tape.task().schedule().succeed()
    return tape.history(queue="sqs")


@plants("C4.move: gone without an end")
def _(tape):
    task = tape.task(**CANCELLED).schedule()
    task._move("", trigger=None)
    return replace_rule(tape.history(), "C1.lost")


@plants("C4.chain: a write is missing")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    del task.moves[1]


@plants("C4.chain: the counts changed in between")
def _(tape):
    task = tape.task().schedule().enqueue()
    task.spoil(1, crashes=1)
    task.claim().start().end().finish()
    task.spoil(1, crashes=0)
    task.spoil_execution(0, attempt=2)


@plants("C4.chain: nothing is on record")
def _(tape):
    task = tape.task(**CANCELLED).schedule().cancel()
    task.moves.clear()


@plants("C4.second-end: ends twice")
def _(tape):
    task = tape.task(**CANCELLED).schedule().enqueue().cancel()
    task._move("cancelled", trigger=None)
    task.spoil(-1, before="")


@plants("C4.second-end: succeeds after it was cancelled")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end().finish()
    task.spoil(-1, after="cancelled")
    task._move("success", trigger=None)
    task.spoil(-1, before="", token_before="")
    return replace_rule(tape.history(), "C1.unproven")


@plants("C4.after-end: lives again")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    task._move("new", trigger=0)
    task.spoil_row(status="success", assoc_status="")
    return replace_rule(tape.history(), "C1.unproven", "C4.row")


@plants("C4.after-end: a success is redriven")
def _(tape):
    task = tape.task().schedule().enqueue().succeed().redrive().enqueue().succeed()
    assert task.row.fence == 2


@plants("C8.charge: a redrive keeps the failures")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end("fatal").finish("fatal_failure", 1)
    task._move("new", trigger=0).enqueue().succeed()


@plants("C4.row: the row stands elsewhere")
def _(tape):
    task = tape.task(**CANCELLED).schedule().enqueue().cancel()
    task.spoil_row(status="fatal_failure", failure_kind=1)
    task.expect(legal=frozenset({"fatal_failure"}))


@plants("C5.same-claim: a claim runs twice")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end().start().end().finish()
    assert len(task.executions) == 2


@plants("C5.unexplained: runs again though nothing had happened")
def _(tape):
    tape.faults.clear()
    tape.task().schedule().enqueue().claim().start().retry(crashed=True).enqueue().succeed()


@plants("C5.unexplained: handed back long after the last fault")
def _(tape):
    tape.fault()
    task = tape.task().wait(60 * SECOND).schedule().enqueue().claim().start().release()
    task.enqueue().succeed()


@plants("C5.unexplained: a fault that comes later explains nothing")
def _(tape):
    tape.now += 60 * SECOND
    tape.task().schedule().enqueue().claim().start().retry(crashed=True).enqueue().succeed()
    tape.fault()


@plants("C5.unexplained: what is done to messages crashes nobody")
def _(tape):
    tape.fault("notification_forge")
    tape.task().schedule().enqueue().claim().start().retry(crashed=True).enqueue().succeed()


@plants("C5.unexplained: what is done to one host crashes nobody on another")
def _(tape):
    tape.fault("kill_executor")  # of executor-1
    tape.task().schedule().enqueue().claim().start().retry(crashed=True).enqueue().succeed()
    history = tape.history()
    return replace(history, executions=tuple(replace(each, host="host-2") for each in history.executions))


@plants("C5.fault-free: runs twice without a fault")
def _(tape):
    tape.faults.clear()
    task = tape.task(plain=True).schedule().enqueue().claim().start().end("raised").retry()
    task.enqueue().succeed()
    fault_free = [each for each in tape.tasks if each.acked.kind == "quick"][-1:]
    tape.tasks[:] = fault_free


@plants("C6.late: ends after the bound")
def _(tape):
    task = tape.task().schedule()
    healed = tape.now
    task.wait(LIMITS.liveness_ns).enqueue().succeed()
    return tape.history(healed_ns=healed)


@plants("C6.start: late though nothing kept it")
def _(tape):
    tape.task().schedule().wait(3 * SECOND).claim().start().end().finish()
    return tape.history(limits=replace(LIMITS, start_ns=2 * SECOND))


@plants("C7.trigger: never looked at again")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    task.spoil(1, trigger_in_ns=None)


@pytest.mark.parametrize("number", range(4))
def test_a_trigger_too_far_away_is_found_in_every_status(number):
    tape = Tape()
    task = tape.task().schedule().enqueue().succeed()
    task.spoil(number, trigger_in_ns=7200 * SECOND)

    assert rules(tape.history()) == ["C7.trigger"]


def test_a_trigger_that_a_write_leaves_alone_was_judged_when_it_was_written():
    tape = Tape()
    task = tape.task().schedule().enqueue().succeed()
    task.spoil(1, trigger_before_in_ns=7200 * SECOND, trigger_in_ns=7200 * SECOND)  # the clock was set back

    assert rules(tape.history()) == []


@plants("C7.sample: a row without a next trigger at a look")
def _(tape):
    return tape.history(samples=(Sample(tape.now, ("task x",)),))


@plants("C8.charge: a reclaim charges nothing")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().beat()
    tape.fault()
    task.fall_silent().reclaim()
    task.spoil(-1, crashes=0)
    task.claim().start().end().finish()


@plants("C8.charge: a snooze charges a failure")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end("snoozed").snooze()
    task.spoil(-1, failures=1)
    task.enqueue().succeed()


@plants("C8.charge: a retry charges both")
def _(tape):
    task = tape.task().schedule().enqueue().claim().start().end("raised").retry()
    task.spoil(-1, crashes=1)
    task.enqueue().succeed()


@plants("C8.charge: a success charges a crash")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    task.spoil(-1, crashes=1)
    task.spoil_row(crashes=1)


@plants("C8.charge: a cancelled attempt charges a crash though nobody had asked")
def _(tape):
    task = tape.task(**CANCELLED).schedule().enqueue().claim().start()
    task._end("cancelled", crashes=1, last_token=task.last.token)


@plants("C8.row: the row has other counts")
def _(tape):
    tape.task().schedule().enqueue().succeed().spoil_row(crashes=1)


@plants("C8.attempt: told a wrong attempt")
def _(tape):
    task = again(tape.task()).claim().start().end().finish()
    task.spoil_execution(1, attempt=1)


@plants("C8.poison: ends otherwise")
def _(tape):
    task = tape.task(**POISON).schedule().enqueue().claim().start().end("fatal").finish("fatal_failure", 1)
    assert task.row.crashes == 0


@plants("C8.quarantine: quarantined a crash too early")
def _(tape):
    tape.task(**POISON).schedule().enqueue().claim().start().exhaust(crashed=True)


@plants("C8.innocent: quarantined though it never crashes")
def _(tape):
    task = tape.task()
    again(task).claim().start()
    tape.fault()
    task.exhaust(crashed=True)


@plants("C9.leak: a process outlives the stop")
def _(tape):
    return tape.history(leftovers=(Leftover("process", "pid 7: python"),))


@plants("C9.connections: they pile up")
def _(tape):
    return tape.history(samples=(Sample(tape.now, connections=51),))


@plants("C9.processes: they pile up")
def _(tape):
    return tape.history(samples=(Sample(tape.now, processes=21),))


@plants("C7.trigger: what waits for another task is looked at")
def _(tape):
    _, second = in_session(tape)
    second.spoil(0, trigger_in_ns=SECOND)


@plants("C7.trigger: what waits and expires is not looked at")
def _(tape):
    _, second = in_session(tape)
    second.expect(expires_ns=tape.now + SECOND)


@plants("C10.overlap: claimed before the one before has ended")
def _(tape):
    first, second = pair(tape)
    first.enqueue().claim().start()
    second.promote().enqueue().claim()
    first.end().finish()
    second.start().end().finish()


@plants("C10.overlap: a run goes on when the next one's has begun")
def _(tape):
    first, second = in_session(tape)
    first.spoil_execution(0, ended_ns=second.executions[0].started_ns + 1)
    return replace_rule(tape.history(), "C2.lease")


@plants("C10.overlap: a session began anew while it had a task")
def _(tape):
    first, second = pair(tape)
    first.enqueue().claim().start()
    second.spoil(0, session_seq=1)
    second.promote().enqueue().claim()
    first.end().finish()
    second.start().end().finish()


@plants("C10.order: the second runs first")
def _(tape):
    first, second = pair(tape)
    second.promote().enqueue().succeed()
    first.enqueue().succeed()


@plants("C10.waiting: it waits under a claim")
def _(tape):
    _, second = in_session(tape)
    second.spoil(0, token="t")
    second.spoil(1, token_before="t")


@plants("C10.rest: what waited when another failed runs")
def _(tape):
    first, second = pair(tape, policy=SessionPolicy.FAIL_REST)
    first.expect(legal=frozenset({"fatal_failure"})).enqueue().claim().start().end("fatal")
    first.finish("fatal_failure", 1)
    second.promote().enqueue().succeed()


@plants("C10.rest: a failure leaves what waited as it was, and the run is over")
def _(tape):
    first, _ = pair(tape, policy=SessionPolicy.FAIL_REST)
    first.expect(legal=frozenset({"fatal_failure"})).enqueue().claim().start().end("fatal")
    first.finish("fatal_failure", 1)
    return tape.history(finished_ns=tape.now)


@plants("C10.rest: it ends with a failure that ends nobody else")
def _(tape):
    first, second = pair(tape)
    first.expect(legal=frozenset({"fatal_failure"})).enqueue().claim().start().end("fatal")
    first.finish("fatal_failure", 1)
    second.doom().end_doomed()


@plants("C10.rest: it ends with a failure that came before it")
def _(tape):
    failing, waiting = failed_session(tape)
    assert failing.last.sequence < waiting.last.sequence
    tape.task(session="rest").join(4).doom().end_doomed()


@plants("C10.session: it is in no session")
def _(tape):
    tape.task(session="vlan").schedule().enqueue().succeed()


@plants("C10.left: a session without tasks")
def _(tape):
    in_session(tape)
    return tape.history(sessions=(SessionRow("vlan", 0, "", ""),))


@plants("C12.exceeded: more units are taken than there are")
def _(tape):
    heavy, light = (tape.task(resources=f"database/={weight}").schedule() for weight in (5, 1))
    heavy.enqueue()
    light.enqueue()
    heavy.succeed()
    light.succeed()


@plants("C12.running: the tasks of one key run side by side")
def _(tape):
    first, _, third, _ = limited(tape)
    first.spoil_execution(0, ended_ns=third.executions[0].started_ns + 10 * STEP)
    return replace_rule(tape.history(), "C2.lease")


@plants("C12.idle: it stays parked though all units are free")
def _(tape):
    task, other = (tape.task(resources="database/=1").schedule() for _ in range(2))
    task.enqueue()
    other.park("database/")
    task.succeed()
    return replace_rule(tape.history(), "C1")


@plants("C12.idle: it stays parked though it is locked no more")
def _(tape):
    passed_over(tape)
    tape.mark("database/", waits=False)
    return replace_rule(tape.history(), "C1")


@plants("C12.rate: thirty start where one a second may")
def _(tape):
    tasks = [tape.task(resources="mail/=1").schedule() for _ in range(30)]
    for task in tasks:
        task.enqueue()
    for task in tasks:
        task.succeed()


@plants("C12.asked: it takes nothing of what it names")
def _(tape):
    tape.task().schedule().enqueue().succeed().expect(resources="database/=1")


@plants("C12.left: what is written as taken is held by nobody")
def _(tape):
    limited(tape)
    return tape.history(uses=(UseRow("database/", 1, 0),))


@plants("C12.left: a task that ended holds units")
def _(tape):
    limited(tape)
    return tape.history(uses=(UseRow("tenant/a", 1, 1),))


@plants("C13.early: released before what it waits for ended")
def _(tape):
    first = tape.node("h")
    second = tape.node("h", first)
    second._move("new", trigger=0).enqueue().succeed()
    first.enqueue().succeed()
    tape.end_graph("h", succeeded=2)
    return replace_rule(tape.history(), "C13.edge")


@plants("C13.early: released though what it waits for failed")
def _(tape):
    first = tape.node("h", legal=frozenset({"fatal_failure"}))
    second = tape.node("h", first)
    first.enqueue().claim().start().end("fatal").finish("fatal_failure", 1)
    second.fire(first).enqueue().succeed()
    tape.end_graph("h", succeeded=1, failed=1)


@plants("C13.early: not all that it waits for had happened")
def _(tape):
    first, other = tape.node("h"), tape.node("h")
    second = tape.node("h", first, other)
    first.enqueue().succeed()
    second.fire(first).enqueue().succeed()
    other.enqueue().succeed()
    tape.end_graph("h", succeeded=3)
    return replace_rule(tape.history(), "C13.edge")


@plants("C13.early: runs while a run that it waits for goes on")
def _(tape):
    first, second, *_ = in_graph(tape, "h")
    first.spoil_execution(0, ended_ns=second.executions[0].started_ns + 1)
    return replace_rule(tape.history(), "C2.lease")


@plants("C13.edge: an edge is decided twice")
def _(tape):
    first, other = tape.node("h"), tape.node("h")
    second = tape.node("h", first, other)
    first.enqueue().succeed()
    second.fire(first, runs=False, edges=2)
    other.enqueue().succeed()
    second.fire(other, edges=0).enqueue().succeed()
    tape.end_graph("h", succeeded=3)


@plants("C13.edge: an edge is decided by another transaction")
def _(tape):
    first, second, *_ = in_graph(tape, "h")
    second.spoil(1, txid=first.last.txid + 10_000)


@plants("C13.edge: an edge is decided when a node is added, and its source has not ended")
def _(tape):
    first, other = tape.node("h"), tape.node("h")
    first.enqueue().succeed()
    added = tape.node("h", first, other)
    added.spoil(0, open_edges=0)
    other.enqueue().succeed()
    added._move("new", trigger=0, open_edges_before=0, open_edges=0, txid=other.last.txid)
    added.enqueue().succeed()
    tape.end_graph("h", succeeded=3)


@plants("C13.skip: what was skipped ran")
def _(tape):
    first = tape.node("h", legal=frozenset({"fatal_failure"}))
    second = tape.node("h", first)
    first.enqueue().claim().start().end("fatal").finish("fatal_failure", 1)
    second.skip(first).end_skipped()
    second.executions.append(replace(first.executions[0], task_id=second.acked.task_id, process="9-9"))
    tape.end_graph("h", failed=1, skipped=1)
    return replace_rule(tape.history(), "C3.unclaimed")


@plants("C13.skip: skipped though what it waits for happened")
def _(tape):
    first = tape.node("h")
    second = tape.node("h", first)
    first.enqueue().succeed()
    second.skip(first).end_skipped()
    tape.end_graph("h", succeeded=1, skipped=1)


@plants("C13.counts: a graph is finished before its nodes are")
def _(tape):
    first = tape.node("h", **CANCELLED)
    first.enqueue().cancel()
    tape.end_graph("h", succeeded=1)


@plants("C13.counts: all nodes ended and the graph did not")
def _(tape):
    tape.node("h").enqueue().succeed()
    tape.end_graph("h", succeeded=1)
    tape.graphs[-1] = replace(tape.graphs[-1], finished=False)


@plants("C13.whole: a node is missing")
def _(tape):
    tape.node("h").enqueue().succeed()
    tape.end_graph("h", succeeded=1)
    tape.graphs[-1] = replace(tape.graphs[-1], total=2)


@plants("C13.graph: a node is in no graph")
def _(tape):
    tape.task(graph="h").schedule().enqueue().succeed()


@plants("C14.twice: a tick has two tasks")
def _(tape):
    tape.time_tables.append(TimeTableRow("t", SECOND, 5 * SECOND, 6 * SECOND))
    for _ in range(2):
        tape.tick("t", 5).enqueue().succeed()


@plants("C14.lost: a tick has no task")
def _(tape):
    tape.time_tables.append(TimeTableRow("t", SECOND, 5 * SECOND, 8 * SECOND))
    for number in (5, 7):
        tape.tick("t", number).enqueue().succeed()


@plants("C14.closed: a tick is in a minute that is closed")
def _(tape):
    tape.time_tables.append(
        TimeTableRow("t", SECOND, 58 * SECOND, 62 * SECOND, has_calendar=True, open_minutes=(0,))
    )
    for number in (58, 59, 60):
        tape.tick("t", number).enqueue().succeed()
    return replace_rule(tape.history(), "C14.astray")


@plants("C14.lost: a tick that moves to an opening has no task")
def _(tape):
    tape.time_tables.append(
        TimeTableRow(
            "t", 7 * SECOND, 63 * SECOND, 126 * SECOND, has_calendar=True, moves=True, open_minutes=(2,)
        )
    )


@plants("C14.astray: a task of a tick that was not decided")
def _(tape):
    tape.time_tables.append(TimeTableRow("t", SECOND, 5 * SECOND, 6 * SECOND))
    for number in (5, 6):
        tape.tick("t", number).enqueue().succeed()


@plants("C14.overlap: two tasks live where overlaps are left out")
def _(tape):
    tape.time_tables.append(TimeTableRow("t", SECOND, 5 * SECOND, 7 * SECOND, overlap=2))
    for story in [tape.tick("t", 5), tape.tick("t", 6)]:
        story.enqueue().succeed()


@plants("C15.update: a run has the payload from before a change")
def _(tape):
    changed(tape).spoil_execution(0, edit=1)


@plants("C15.update: a run has the payload as scheduled")
def _(tape):
    changed(tape).spoil_execution(0, edit=0)


@plants("C15.update: a run has a payload that nobody had sent")
def _(tape):
    changed(tape).spoil_execution(0, edit=3)


@plants("C15.priority: claimed with the priority from before a change")
def _(tape):
    task = changed(tape)
    task.spoil(-3, priority=2)


@plants("C15.due: claimed before the time that it was moved to")
def _(tape):
    task = tape.task().schedule().enqueue().succeed()
    task.spoil(2, due_in_ns=SECOND)


@plants("C15.purge: deleted while it lived")
def _(tape):
    tape.task(purge_asked=True).schedule().enqueue().row = None


def flooded(tape: Tape, before: int) -> Story:
    """The key of a flood has `before` starts before a task of another key, which came when none had begun."""
    turns = {"fair_round": 3, "fair_room": 4, "least_executions": 0}
    tape.task(fair_key="ann", **turns).schedule().claim().start().beat().end().finish()
    tape.now += 10 * SECOND
    flood = [tape.task(fair_key="ann", **turns).schedule() for _ in range(before)]
    waiting = tape.task(fair_key="bob", **turns).schedule()
    tape.now += SECOND
    tape.task().schedule().claim().start().beat().end().finish()  # the time goes on by what is written
    for task in flood:
        task.claim()
    waiting.claim()
    for task in (*flood, waiting):
        task.start().beat().end().finish()
    return waiting


@plants("C19.starved: one key has all starts while another has a due task")
def _(tape):
    flooded(tape, 8)


@plants("C18.twice: a task of a key is written while another one lives")
def _(tape):
    first, second = tape.task(unique="k").schedule().enqueue(), tape.task(unique="k").schedule().enqueue()
    for story in (first, second):
        story.succeed()


def test_one_task_of_a_key_after_the_other_is_right():
    tape = Tape()
    for _ in range(2):
        tape.task(unique="k").schedule().enqueue().succeed()

    assert not check(tape.history()).violations


def test_an_earlier_change_may_come_late_if_a_try_of_it_was_not_answered():
    tape = Tape()
    changed(tape).spoil_execution(0, edit=1)
    tape.changes[0] = replace(tape.changes[0], tries=2)

    assert rules(tape.history()) == []


def replace_rule(history: History, *rules: str) -> History:
    """Of what follows of necessity from the violation that is meant."""
    return replace(history, exemptions=dict.fromkeys(rules, "follows"))


def with_files(tape: Tape) -> Story:
    """A task that reads a file, and returns one."""
    task = tape.task(attaches=True).schedule().enqueue().claim().start()
    about = task.acked.task_id, task.last.fence, tape.now
    tape.more |= {
        "file_reads": (FileRead(*about, "aa", "aa"),),
        "files_sent": (FileSent(*about),),
        "file_uses": (FileUse(task.acked.task_id, "made"),),
    }
    return task


def read_otherwise(tape: Tape, **changes: Any) -> None:
    task = with_files(tape)
    (read,) = tape.more["file_reads"]
    tape.more["file_reads"] = (replace(read, **changes),)
    task.end().finish()


@plants("C17.content: other bytes")
def _(tape):
    read_otherwise(tape, got="bb")


@plants("C17.missing: refused to who holds the claim")
def _(tape):
    read_otherwise(tape, got="", refused="it is not there")


@plants("C17.result: gone before the grace was over")
def _(tape):
    with_files(tape).end().finish("fatal_failure", int(FailureKind.BAD_RESULT))
    return tape.history(limits=replace(LIMITS, file_grace_ns=10 * SECOND))


@plants("C17.lost: not to be fetched at the end")
def _(tape):
    with_files(tape).end().finish()
    tape.more["file_uses"] = (FileUse("t", "made", "its content is gone"),)


def plant_left(what: str) -> None:
    @plants(f"C17.{what}: at the end")
    def _(tape):
        tape.more["files_left"] = (FileLeft(what, "x"),)


for each in ("orphan", "unused", "removing", "use", "part", "usage"):
    plant_left(each)


def watched(tape: Tape, since: int, *told: Told, lost: str = "") -> History:
    """A run that a watch saw from an instant on."""
    tape.now += STEP
    stretch = WatchStretch(0, since, tape.now, lost)
    return tape.history(watches=(stretch,), told=told)


def ended(task: Story, *, run: int = 1, status: str = "success") -> Told:
    return Told(0, "task", task.acked.task_id, status=status, run=run)


@plants("C20.twice: an end is told twice")
def _(tape):
    since = tape.now
    task = tape.task().schedule().enqueue().succeed()
    return watched(tape, since, ended(task), ended(task, run=2))


@plants("C20.missing: an end is not told")
def _(tape):
    since = tape.now
    tape.task().schedule().enqueue().succeed()
    return watched(tape, since)


@plants("C20.missing: a graph is not told")
def _(tape):
    since = tape.now
    in_graph(tape, "h")
    nodes = [each for each in tape.tasks if each.acked.graph == "h"]
    return watched(tape, since, *(ended(each, status=each.last.after) for each in nodes))


@plants("C20.order: a run is told after the end of its task")
def _(tape):
    since = tape.now
    task = tape.task().schedule().enqueue().succeed()
    return watched(tape, since, ended(task), Told(0, "run", task.acked.task_id, run=1))


@plants("C20.lost: a watch is lost though no other Postgres took over")
def _(tape):
    since = tape.now
    task = tape.task().schedule().enqueue().succeed()
    return watched(tape, since, ended(task), lost="another server took over")


def used(*answers: str, tries: int = 1) -> tuple[AddressUse, ...]:
    """Uses of one address, each with a value of its own."""
    return tuple(AddressUse("k", f"{place}", answer, tries) for place, answer in enumerate(answers))


@plants("C21.twice: two uses of an address are accepted")
def _(tape):
    return tape.history(address_uses=used("open", "open"), events=(EventRow("k", "0"),))


@plants("C21.twice: an address sent two events")
def _(tape):
    events = (EventRow("k", "0"), EventRow("k", "1"))
    return tape.history(address_uses=used("open", "used"), events=events)


@plants("C21.event: the use that was accepted sent nothing")
def _(tape):
    return tape.history(address_uses=used("open", "used"))


@plants("C21.event: the event is that of the use that was refused")
def _(tape):
    return tape.history(address_uses=used("open", "used"), events=(EventRow("k", "1"),))


@plants("C21.nobody: each use is refused, and each was sent once")
def _(tape):
    return tape.history(address_uses=used("used", "used"), events=(EventRow("k", "0"),))


@plants("C21.guess: a token that nobody made is accepted")
def _(tape):
    return tape.history(address_uses=(AddressUse("k", "0", "open", guessed=True),))


def test_a_watch_that_tells_each_end_once_is_right() -> None:
    tape = Tape()
    since = tape.now
    task = tape.task().schedule().enqueue().succeed()
    lost = Told(0, "task", str(UUID(int=9)), status="success", run=1)

    assert rules(watched(tape, since, ended(task))) == []
    assert rules(watched(tape, since, ended(task), lost)) == ["C20.twice"]


def test_an_address_may_be_found_used_by_a_try_that_was_not_answered() -> None:
    history = Tape().history(address_uses=used("used", "used", tries=2), events=(EventRow("k", "0"),))

    assert rules(history) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found_and_only_that(name):
    tape = Tape()
    if "fault-free" not in name and "unexplained" not in name:
        eventful(tape)
    history = PLANTED[name](tape) or tape.history()

    found = check(history).violations

    assert [violation.rule for violation in found] == [name.partition(":")[0]], "\n".join(map(str, found))
    assert found[0].expected
    assert str(found[0])


def test_what_a_run_uploaded_may_be_gone_after_the_grace_or_when_the_clock_was_moved():
    tape = Tape()
    with_files(tape).end().finish("fatal_failure", int(FailureKind.BAD_RESULT))
    long = replace(LIMITS, file_grace_ns=10 * SECOND)

    assert rules(tape.history(limits=replace(LIMITS, file_grace_ns=0))) == []
    assert rules(tape.history(limits=long, clock_moves=((0, 2000 * SECOND),))) == []


def test_who_has_lost_its_claim_may_read_no_more():
    tape = Tape()
    read_otherwise(tape, got="", refused="its claim is over", at_ns=tape.now + SECOND)

    assert rules(tape.history()) == []


def test_a_result_is_refused_only_where_files_are_returned():
    tape = Tape()
    task = tape.task().schedule().enqueue().claim().start().end()
    task.finish("fatal_failure", int(FailureKind.BAD_RESULT))

    assert rules(tape.history()) == ["C1.ending"]


def test_an_execution_that_goes_on_over_two_others_overlaps_with_both():
    tape = Tape()
    task = tape.task().schedule().enqueue().claim().start().end("raised").retry()
    task.enqueue().claim().start().end("raised").retry().enqueue().claim().start().end().finish()
    task.spoil_execution(0, ended_ns=task.executions[2].started_ns + 1)

    assert rules(tape.history()) == ["C2.times", "C2.times"]


def test_every_rule_of_the_list_has_a_planted_violation():
    import tests.chaos.checker as package

    listed = set()
    number = ""
    for line in (package.__doc__ or "").splitlines():
        if line[:1] == "C" and line[1:2].isdigit():
            number, _, rest = line.partition(" ")
        elif line.startswith("   "):
            rest = line
        else:
            continue
        names = rest.strip().partition("   ")[0].partition("  ")[0]
        listed |= {f"{number}.{name.strip()}" for name in names.split(",")}

    planted = {name.partition(":")[0] for name in PLANTED}

    assert planted == listed


def test_a_kept_history_is_judged_as_it_was(tmp_path):
    tape = Tape()
    eventful(tape)
    tape.task(**CANCELLED).schedule().enqueue().cancel().expect(cancel_asked=False)
    limits = replace(LIMITS, least_faults={"": 1})
    history = tape.history(
        limits=limits,
        leftovers=(Leftover("process", "x"),),
        seen=(Seen(1, "1-1", 5),),
        sessions=(SessionRow("vlan", 1, "", "7"),),
        uses=(UseRow("database/", 0, 0),),
    )

    saved_history.dump(history, tmp_path / "history.json")
    again = saved_history.load(tmp_path / "history.json")

    assert again == history
    assert check(again) == check(history)
    assert not check(again).holds


# ---- exemptions and inconclusive runs ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["C1.lost", "C1"])
def test_an_exempt_rule_is_told_with_its_reason_and_is_no_violation(rule):
    tape = Tape()
    tape.task()

    verdict = check(tape.history(exemptions={rule: "the standby was behind"}))

    assert verdict.holds
    assert "the standby was behind" in verdict.notes[0]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"least_tasks": 100}, "at least 100 make a run"),
        ({"least_faults": {"": 100}}, "at least 100 make a run"),
        ({"least_faults": {"kill": 1, "clock": 2}}, "0 faults of kind clock"),
        ({"least_samples": 2}, "1 samples were taken; at least 2"),
        ({"least_seen": 1}, "0 callback processes were seen alive; at least 1"),
        ({"starved_ns": 2, "most_starved_ns": 1}, "the machine had no time"),
    ],
)
def test_too_few_tasks_or_faults_prove_nothing(limits, reason):
    tape = Tape()
    eventful(tape)

    verdict = check(tape.history(limits=replace(LIMITS, **limits)))

    assert verdict.violations == ()
    assert not verdict.holds
    assert reason in verdict.inconclusive[0]


def test_a_run_that_ended_too_early_to_call_a_task_lost_proves_nothing():
    tape = Tape()
    tape.task().schedule()

    verdict = check(tape.history(finished_ns=tape.now + SECOND))

    assert verdict.violations == ()
    assert "before 1 tasks had to be final" in verdict.inconclusive[0]


def test_a_violation_says_rule_task_expectation_and_evidence():
    tape = Tape()
    task = again(tape.task()).claim().start().end().finish()
    task.spoil_execution(1, alone=False)

    (violation,) = check(tape.history()).violations

    text = str(violation)
    assert text.startswith(f"C2.lock task {task.acked.task_id}: ")
    assert "not alone" in text
    assert "jsonl:1" in text


# ---- whatever happens, as long as it is legal ---------------------------------------------------------------

FATES = st.sampled_from(["succeed", "fail", "crash", "silent", "snooze", "release", "unstarted", "lost"])


@st.composite
def histories(draw):
    """Tasks that come to their ends in any legal way, one after the other, a fault whenever one is needed."""
    tape = Tape()
    for number in range(draw(st.integers(1, 5))):
        task = tape.task(least_executions=0, legal=frozenset({"success", "fatal_failure"})).schedule()
        for turn, fate in enumerate(draw(st.lists(FATES, max_size=6))):
            process = f"{1000 + number * 10 + turn}-1"
            if task.last.after != "enqueued":
                task.enqueue()
            task.claim()
            if fate not in ("unstarted", "lost"):
                task.start(process)
                if draw(st.booleans()):
                    task.beat()
            if fate == "succeed":
                task.end().finish()
                break
            if fate == "fail":
                task.end("raised").retry()
            elif fate == "snooze":
                task.end("snoozed").snooze()
            else:
                tape.fault()
                if fate == "crash":
                    task.retry(crashed=True)
                elif fate in ("silent", "lost"):
                    task.fall_silent().reclaim()
                else:
                    task.release()
        if task.last.after != "success":
            if task.last.after != "enqueued":
                task.enqueue()
            task.expect(expires_ns=tape.now).expire()
    return tape


@settings(max_examples=60, deadline=None)
@given(histories())
def test_every_legal_history_passes(tape):
    assert [str(violation) for violation in check(tape.history()).violations] == []


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_a_history_that_lost_any_one_write_is_found(tape, data):
    task = data.draw(st.sampled_from(tape.tasks))
    number = data.draw(st.integers(0, len(task.moves) - 1))
    lost = task.moves[number]
    del task.moves[number]
    if lost.before == lost.after and number:  # a heartbeat more or less is the same
        return

    assert set(rules(tape.history())) & {"C4.chain", "C4.row"}


def test_a_fair_key_waits_for_a_round_of_the_others_and_for_what_was_picked() -> None:
    enough, too_long, broken = Tape(), Tape(), Tape()

    flooded(enough, 7)
    victim = flooded(too_long, 8)
    broken.faults.append(Fault("pause_hsc", "hsc-1", broken.now, broken.now + 60 * SECOND))
    flooded(broken, 8)

    assert "C19.starved" not in rules(enough.history())
    found = [each for each in check(too_long.history()).violations if each.rule == "C19.starved"]
    assert [each.task_id for each in found] == [victim.acked.task_id]
    assert "C19.starved" not in rules(broken.history())


def test_ticks_are_left_out_of_closed_time_or_are_one_tick_at_the_next_opening() -> None:
    tape = Tape()
    hours = {"has_calendar": True, "open_minutes": (0, 2)}
    tape.time_tables += [
        TimeTableRow("skips", SECOND, 58 * SECOND, 122 * SECOND, **hours),
        TimeTableRow("moves", 7 * SECOND, 56 * SECOND, 126 * SECOND, moves=True, **hours),
        TimeTableRow("never", SECOND, 56 * SECOND, 200_000 * SECOND, has_calendar=True),
    ]
    for name, numbers in (("skips", (58, 59, 120, 121)), ("moves", (56, 120))):
        for number in numbers:
            tape.tick(name, number).enqueue().succeed()

    assert rules(tape.history()) == []


def test_a_fair_key_is_judged_while_hosts_are_broken_and_the_machine_is_busy() -> None:
    tape = Tape()
    tape.faults.append(Fault("pause_host", "host-1", tape.now, tape.now + 60 * SECOND))
    tape.faults.append(Fault("net_delay", "host-1>hsc-1", tape.now, tape.now + 60 * SECOND))
    flooded(tape, 8)
    busy = Fault("machine_busy", "machine", tape.now - 60 * SECOND, tape.now)

    assert "C19.starved" in rules(tape.history())
    assert "C19.starved" in rules(tape.history(faults=(*tape.faults, busy)))


def test_waits_of_fair_keys_count_if_more_was_due_of_others_than_may_start_before_them() -> None:
    few, many = Tape(), Tape()
    flooded(few, 7)
    flooded(many, 8)

    assert check(few.history()).figures["fair_waits"] == 0
    assert check(many.history()).figures["fair_waits"] == 1


def test_the_tasks_of_one_pick_have_no_order_among_themselves() -> None:
    tape = Tape()
    flooded(tape, 8)
    moves = [
        replace(move, txid=99) if move.after == "claimed" and move.at_ns > tape.now - 5 * SECOND else move
        for move in tape.history().transitions
    ]

    assert "C19.starved" not in rules(tape.history(transitions=tuple(moves)))


def entered_nodes(tape: Tape) -> tuple[Story, Story]:
    """Both have entered it, the second while the first was before it."""
    source = tape.node("g")
    first, second = (tape.node("g", source, session="s") for _ in range(2))
    source.claim().start().beat().end().finish()
    for number, node in enumerate((first, second)):
        place = {"session": "s", "session_seq": number + 1}
        node._move("waiting", trigger=0, open_edges=0, txid=source.last.txid, parked_on="session:s")
        node._move("waiting" if number else "new", trigger=None if number else 0, **place)
    return first, second


def test_a_node_that_enters_its_session_by_any_of_its_edges_counts_no_other() -> None:
    tape = Tape()
    first = tape.node("g")
    skipped = tape.node("g", first, fires_on=2)
    node = tape.node("g", first, skipped, any_of=True, fires_on=15, session="s")
    first.claim().start().beat().end().finish()
    txid = first.last.txid
    skipped._move("waiting", trigger=0, open_edges=0, txid=txid, doom=int(FailureKind.GRAPH_SKIPPED))
    node._move("waiting", trigger=0, open_edges=1, txid=txid, parked_on="session:s")
    skipped.end_skipped()
    node._move("new", trigger=0, session="s", session_seq=1)
    node.claim().start().beat().end().finish()

    assert "C13.edge" not in rules(tape.history())


def of_sessions(history: History) -> list[str]:
    return [rule for rule in rules(history) if rule.startswith(("C10", "C7"))]


def test_nodes_of_a_session_run_in_the_order_in_which_they_entered_it() -> None:
    one_after_the_other, out_of_order = Tape(), Tape()

    first, second = entered_nodes(one_after_the_other)
    first.claim().start().beat().end().finish()
    second.promote().claim().start().beat().end().finish()
    first, second = entered_nodes(out_of_order)
    second.promote().claim().start().beat().end().finish()
    first.claim().start().beat().end().finish()

    assert of_sessions(one_after_the_other.history()) == []
    assert of_sessions(out_of_order.history()) == ["C10.order"]


def test_a_node_that_runs_is_in_the_session_that_it_was_given() -> None:
    tape = Tape()

    tape.node("g", session="s").claim().start().beat().end().finish()

    assert of_sessions(tape.history()) == ["C10.session"]


def test_a_node_that_its_session_dooms_is_decided_by_its_end() -> None:
    tape = Tape()
    first, doomed = entered_nodes(tape)
    handler = tape.node("g", doomed, fires_on=2)
    first.claim().start().beat().end("fatal").finish("fatal_failure")
    doomed._move("waiting", trigger=0, doom=int(FailureKind.SESSION_FAILED))
    doomed.end_doomed()
    handler.fire(doomed).claim().start().beat().end().finish()

    assert not {"C13.early", "C13.edge"} & set(rules(tape.history()))
