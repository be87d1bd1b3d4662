"""Each kind of problem is found on a real store, with whom it hits and what ends it."""

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta

import pytest

import duly
from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import StoreUnavailableError
from duly_core.fleet.services import AS_HSC, AS_STORE_CONSUMER, list_services, reporting
from duly_core.gates import store as store_gates
from duly_core.lambdas.names import QueueKey
from duly_core.problems.installation import certificate_expiring, store_slow
from duly_core.problems.kinds import Kind
from duly_core.problems.queues import LateQueues
from duly_core.slo import store as store_slo
from duly_core.tasks import claims, polling
from duly_core.tasks.claims import Caller, Pick
from duly_frontend.problems.board import ProblemBoard
from duly_wire.enums import Outcome, Priority, ProblemActionKind, ProblemKind, ProblemSeverity, ProblemStatus
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.problems import pause, ran
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA, SECOND
from tests.fleet.test_fleet_hosts import INTERVAL, a_report

MINUTE = timedelta(minutes=1)


@pytest.fixture
def fleet(frontend):
    return fleet_pb2_grpc.FleetServiceStub(frontend.channel)


async def claim_all(store):
    picks = [Pick(QueueKey(LAMBDA, priority), 10, 0) for priority in Priority]
    caller = Caller("test-host", os.urandom(14))
    return await claims.claim_work(store, picks, [caller], 10, CLAIM_TIMEOUT)


async def until_reported(store):
    async with asyncio.timeout(30):
        while not await list_services(store):
            pass


async def problems(board, client, **wanted):
    await board.run_once()
    return {each.kind: each for each in (await client.problems(**wanted)).problems}


async def test_many_lambdas_of_one_host_that_died_are_one_problem(board, client, task_states, fleet, clock):
    names = [f"mail.{number}" for number in range(30)]
    for name in names:
        await task_states.register(name)
        await task_states.new(lambda_name=name)
    await fleet.ReportHost(a_report("rack-1:1:a", lambdas=names))
    await clock.tick(4 * INTERVAL)

    found = await problems(board, client)

    no_host = found[ProblemKind.NO_HOST]
    assert [*found] == [ProblemKind.NO_HOST]
    assert no_host.text == "no live host serves 30 lambdas with due tasks: the last one, rack-1, is silent"
    assert (no_host.severity, no_host.hits) == (ProblemSeverity.CRITICAL, "30 tasks of 30 lambdas")
    assert [each.host_id for each in no_host.hosts] == ["rack-1:1:a"]
    assert (await client.problems(host="rack-1")).problem_count == 1
    assert (await client.problems(host="rack-2")).problem_count == 0
    assert (await client.problems(lambda_name="mail.7")).problem_count == 1


async def test_a_silent_host_that_leaves_nobody_without_a_host_is_a_warning(board, client, fleet, clock):
    await fleet.ReportHost(a_report("rack-1:1:a"))
    await clock.tick(4 * INTERVAL)

    found = await problems(board, client)

    assert found[ProblemKind.SILENT_HOSTS].severity is ProblemSeverity.WARNING
    assert (
        "1 host stopped reporting without saying that it ends: rack-1" in found[ProblemKind.SILENT_HOSTS].text
    )
    assert (await client.problems(lambda_name=LAMBDA)).problem_count == 1


async def test_a_silent_host_whose_lambdas_a_later_worker_of_its_machine_serves_was_replaced(
    board, client, fleet, clock
):
    await fleet.ReportHost(a_report("rack-1:2:b", lambdas=("mail.send", "mail.read")))
    await fleet.ReportHost(a_report("rack-1:1:a", lambdas=("mail.send", "mail.read")))
    await clock.tick(4 * INTERVAL)
    await fleet.ReportHost(a_report("rack-1:2:b", lambdas=("mail.send", "mail.read")))
    await fleet.ReportHost(a_report("rack-1:3:c", lambdas=("mail.send",)))
    await fleet.ReportHost(a_report("rack-2:4:d", lambdas=("mail.send", "mail.read"), name="rack-2"))

    before = await problems(board, client)
    await fleet.ReportHost(a_report("rack-1:5:e", lambdas=("mail.read",)))
    replaced = await problems(board, client)

    assert before[ProblemKind.SILENT_HOSTS].text.startswith("1 host stopped")
    assert replaced == {}


async def test_a_later_worker_replaces_one_that_fell_silent_and_not_all_of_its_machine(
    board, client, fleet, clock
):
    for _ in range(2):
        for number in range(8):
            await fleet.ReportHost(a_report(f"rack-1:{number}:a"))
    await clock.tick(4 * INTERVAL)
    await fleet.ReportHost(a_report("rack-1:9:b"))

    one = await problems(board, client)
    for number in range(10, 17):
        await fleet.ReportHost(a_report(f"rack-1:{number}:b"))
    all_of_them = await problems(board, client)

    assert one[ProblemKind.SILENT_HOSTS].text.startswith("7 hosts stopped")
    assert all_of_them == {}


async def test_workers_that_crashed_in_a_row_are_replaced_by_the_one_that_runs_and_hide_no_other_machine(
    board, client, fleet, clock
):
    await fleet.ReportHost(a_report("rack-9:1:a", name="rack-9"))
    for number in range(120):
        await clock.tick(SECOND)
        await fleet.ReportHost(a_report(f"rack-1:{number}:a"))
    await clock.tick(4 * INTERVAL)
    await fleet.ReportHost(a_report("rack-1:999:b"))

    found = await problems(board, client)

    assert [host.name for host in found[ProblemKind.SILENT_HOSTS].hosts] == ["rack-9"]
    assert found[ProblemKind.SILENT_HOSTS].text.startswith("1 host stopped")


async def test_clocks_that_differ_are_told_beside_many_silent_hosts(board, client, fleet, clock):
    for number in range(120):
        await fleet.ReportHost(a_report(f"rack-{number}:1:a", name=f"rack-{number}"))
    await clock.tick(4 * INTERVAL)
    skewed = a_report("clock:1:a", name="clock")
    skewed.clock_ahead.CopyFrom(to_duration(MINUTE))
    await fleet.ReportHost(skewed)

    found = await problems(board, client)

    assert found[ProblemKind.SILENT_HOSTS].text.startswith("120 hosts stopped")
    assert [host.name for host in found[ProblemKind.CLOCKS_APART].hosts] == ["clock"]


async def test_of_a_row_of_crashes_that_nobody_follows_the_last_one_is_told(board, client, fleet, clock):
    for number in range(3):
        await clock.tick(SECOND)
        await fleet.ReportHost(a_report(f"rack-1:{number}:a"))
    await clock.tick(4 * INTERVAL)

    found = await problems(board, client)

    assert [host.host_id for host in found[ProblemKind.SILENT_HOSTS].hosts] == ["rack-1:2:a"]


async def test_references_that_nobody_claims_are_late_with_the_tasks_that_were_not_sent(
    board, client, task_states, fleet, clock
):
    await task_states.register()
    for _ in range(3):
        await task_states.enqueued()
    await fleet.ReportHost(a_report("rack-1:1:a"))
    await clock.tick(7 * SECOND)
    await client.schedule(LAMBDA)
    await clock.tick(7 * SECOND)
    await fleet.ReportHost(a_report("rack-1:1:a"))

    late = (await problems(board, client))[ProblemKind.LATE]
    await clock.tick(4 * INTERVAL)
    found = await problems(board, client)

    assert late.hits == f"4 tasks of {LAMBDA}"
    # the clock goes on while the test does
    assert re.fullmatch(
        rf"tasks of {LAMBDA} are 1[4-9] s late, where 5 s is promised: its reference was sent to the queue of {LAMBDA} 1[4-9] s ago, and no host has claimed it",
        late.text,
    )
    assert [*found] == [ProblemKind.NO_HOST]
    assert found[ProblemKind.NO_HOST].hits == f"4 tasks of {LAMBDA}"


async def test_a_reference_that_a_gate_held_back_is_late_from_when_it_was_sent(
    board, store, client, task_states, fleet, clock
):
    await task_states.register()
    await client.schedule(LAMBDA)
    await pause(store)
    await clock.tick(10 * MINUTE)
    await store_gates.delete_gates(store, ["deploy"])
    await polling.enqueue(store, {QueueKey(LAMBDA, priority): 10 for priority in Priority}, MINUTE)
    await fleet.ReportHost(a_report())

    at_once = await problems(board, client)
    await clock.tick(7 * SECOND)
    await fleet.ReportHost(a_report())
    later = await problems(board, client)

    assert at_once == {}
    assert re.match(rf"tasks of {LAMBDA} are \d+ s late", later[ProblemKind.LATE].text)


async def test_due_tasks_that_a_pause_holds_are_counted_with_it_and_no_problem_of_their_own(
    board, store, client, task_states, clock
):
    await task_states.register()
    await client.schedule(LAMBDA)
    await pause(store)
    await clock.tick(10 * MINUTE)

    found = await problems(board, client)

    assert [*found] == [ProblemKind.PAUSED]
    assert found[ProblemKind.PAUSED].hits == f"1 task of {LAMBDA}"
    assert (await client.problems()).status is ProblemStatus.HEALTHY


async def test_slots_that_one_lambda_holds_name_it_and_the_tasks_to_kill(
    board, store, client, task_states, fleet, clock
):
    await task_states.register()
    await task_states.register("poison.run")
    for _ in range(4):
        await task_states.claimed(lambda_name="poison.run")
    await client.schedule(LAMBDA)
    await ran(store, "update task_assoc set holder = 'rack-1:1:a/0' where holder is not null")
    report = a_report("rack-1:1:a", lambdas=(LAMBDA, "poison.run"))
    report.executors[0].processes, report.executors[0].slots, report.executors[0].busy_slots = 1, 4, 4
    await clock.tick(12 * SECOND)
    await fleet.ReportHost(report)

    found = await problems(board, client)

    held = found[ProblemKind.SLOTS_HELD]
    assert [*found] == [ProblemKind.SLOTS_HELD]
    assert held.text.startswith("poison.run holds 4 of the 4 slots that others wait for, the first for 1")
    assert (held.subject, held.hits) == ("poison.run", f"1 task of {LAMBDA}")
    assert len(held.tasks) == 4
    assert held.commands[0].command == "duly cancel --kill " + " ".join(each.task_id for each in held.tasks)
    assert held.commands[-1].command == "duly resources set lambda:poison.run 2"
    assert held.action.kind is ProblemActionKind.CANCEL_TASKS

    await client.put_resource("lambda:poison.run", 1)
    limited = (await problems(board, client))[ProblemKind.SLOTS_HELD]

    assert [each.command.split()[1] for each in limited.commands] == ["cancel", "list"]


async def test_tasks_that_are_late_with_free_slots_are_late(board, client, task_states, fleet, clock):
    await task_states.register()
    await client.schedule(LAMBDA)
    await clock.tick(2 * MINUTE)
    await fleet.ReportHost(a_report())

    late = (await problems(board, client))[ProblemKind.LATE]

    assert (late.severity, late.hits) == (ProblemSeverity.CRITICAL, f"1 task of {LAMBDA}")
    assert re.match(rf"tasks of {LAMBDA} are 2 min( \d+ s)? late, where 5 s is promised: ", late.text)


@pytest.mark.parametrize(
    ("within", "waited", "severity"),
    [
        (SECOND, 3 * SECOND, ProblemSeverity.WARNING),
        (timedelta(milliseconds=100), 3 * SECOND, ProblemSeverity.WARNING),
        (10 * MINUTE, 9 * MINUTE, None),
        (10 * MINUTE, 10 * MINUTE + 30 * SECOND, ProblemSeverity.WARNING),
        (10 * MINUTE, 12 * MINUTE, ProblemSeverity.CRITICAL),
    ],
)
async def test_a_task_is_late_by_what_is_promised_of_its_lambda(
    store, task_states, fleet, clock, within, waited, severity
):
    await task_states.register()
    await store_slo.put_objective(store, "mail.*", lambda _: (0.9, within))
    await task_states.new()
    await clock.tick(waited)
    await fleet.ReportHost(a_report())

    found = (await ProblemBoard(store).find()).problems

    assert [(each.kind, each.severity) for each in found] == ([(Kind.LATE, severity)] if severity else [])


@pytest.mark.parametrize(
    ("promised", "waited", "is_broken"),
    [(0.1, 0.9, False), (0.1, 1.1, True), (1, 1.1, True), (60, 59, False), (60, 61, True)],
)
def test_what_is_promised_is_broken_after_a_second_at_the_earliest(promised, waited, is_broken):
    now, queue = datetime(2026, 11, 27, tzinfo=UTC), QueueKey(LAMBDA, Priority.NORMAL)
    late = LateQueues({queue: now - waited * SECOND}, {queue: promised * SECOND})

    assert late.is_broken(queue, now) == is_broken


async def test_lambdas_without_an_objective_are_late_by_the_setting(store, task_states, fleet, clock):
    settings = LiveSloSettings(start_within=10 * MINUTE)
    board = ProblemBoard(store, slo=lambda: settings)
    await task_states.register()
    await task_states.new()
    await clock.tick(9 * MINUTE)
    await fleet.ReportHost(a_report())

    assert (await board.find()).problems == []
    settings = LiveSloSettings(start_within=2 * MINUTE)
    (late,) = (await board.find()).problems
    assert (late.kind, late.values["within"]) == (Kind.LATE, "2 min")


async def test_lambdas_of_several_objectives_are_late_by_their_own_and_the_sentence_says_so(
    board, client, store, task_states, fleet, clock
):
    for name, within in (("mail.send", SECOND), ("mail.read", MINUTE), ("night.report", 10 * MINUTE)):
        await task_states.register(name)
        await store_slo.put_objective(store, name, lambda _, within=within: (0.9, within))
        await task_states.new(lambda_name=name)
    await clock.tick(90 * SECOND)
    await fleet.ReportHost(a_report(lambdas=("mail.send", "mail.read", "night.report")))

    late = (await problems(board, client))[ProblemKind.LATE]

    assert late.hits == "2 tasks of 2 lambdas"
    assert re.match(r"tasks of 2 lambdas are 1 min 3\d s late, more than their objectives allow: ", late.text)
    assert late.severity is ProblemSeverity.CRITICAL  # of the one that may wait for a second


async def test_slots_are_held_from_others_only_once_these_are_later_than_promised(
    board, client, store, task_states, fleet, clock
):
    await task_states.register()
    await task_states.register("poison.run")
    await store_slo.put_objective(store, LAMBDA, lambda _: (0.9, 2 * MINUTE))
    await task_states.claimed(lambda_name="poison.run")
    await client.schedule(LAMBDA)
    await ran(store, "update task_assoc set holder = 'rack-1:1:a/0' where holder is not null")
    report = a_report("rack-1:1:a", lambdas=(LAMBDA, "poison.run"))
    report.executors[0].processes, report.executors[0].slots, report.executors[0].busy_slots = 1, 1, 1
    await clock.tick(MINUTE)
    await fleet.ReportHost(report)
    assert await problems(board, client) == {}

    await clock.tick(2 * MINUTE)
    await fleet.ReportHost(report)
    assert [*await problems(board, client)] == [ProblemKind.SLOTS_HELD]


async def test_a_task_that_no_host_serves_is_told_at_once_however_late_it_may_start(
    board, client, store, task_states, clock
):
    await task_states.register()
    await store_slo.put_objective(store, LAMBDA, lambda _: (0.9, 10 * MINUTE))
    await client.schedule(LAMBDA)
    await clock.tick(6 * SECOND)

    assert [*await problems(board, client)] == [ProblemKind.NO_HOST]


async def test_a_reference_that_nobody_claims_is_late_by_what_is_promised_of_its_lambda(
    board, client, store, task_states, fleet, clock
):
    await task_states.register()
    await store_slo.put_objective(store, LAMBDA, lambda _: (0.9, MINUTE))
    await task_states.enqueued()
    await clock.tick(30 * SECOND)
    await fleet.ReportHost(a_report())
    in_time = await problems(board, client)

    await clock.tick(MINUTE)
    await fleet.ReportHost(a_report())

    assert in_time == {}
    assert (await problems(board, client))[ProblemKind.LATE].hits == f"1 task of {LAMBDA}"


async def test_tasks_of_a_lambda_that_nobody_registered_any_more_are_said(
    board, store, client, task_states, clock
):
    await task_states.register()
    await client.schedule(LAMBDA)
    await ran(store, "delete from lambda")
    await clock.tick(MINUTE)

    assert LAMBDA in (await problems(board, client))[ProblemKind.LAMBDA_GONE].text


async def test_a_task_that_is_on_time_is_no_problem(board, client, task_states):
    await task_states.register()
    await client.schedule(LAMBDA)
    await client.schedule(LAMBDA, delay=timedelta(days=1))

    assert await problems(board, client) == {}


async def test_a_full_resource_names_who_holds_it_and_a_resource_without_units_is_information(
    board, client, task_states, clock
):
    await task_states.register()
    await client.put_resource("printer", 1, note="the one in the hall")
    await client.put_resource("empty", 0)
    for name in ("printer", "printer", "empty"):
        await client.schedule(LAMBDA, resources=[name])
    await claim_all(task_states.store)
    await clock.tick(2 * MINUTE)

    await board.run_once()
    found = {
        each.subject: each for each in (await client.problems(kinds=[ProblemKind.RESOURCE_FULL])).problems
    }

    assert found["printer"].severity is ProblemSeverity.WARNING
    assert "all 1 unit of the resource printer are taken" in found["printer"].text
    assert len(found["printer"].tasks) == 1
    assert found["printer"].hits == f"1 task of {LAMBDA}"
    assert found["empty"].severity is ProblemSeverity.INFORMATION


async def test_dead_letters_of_one_cause_are_one_problem(board, client, task_states, clock):
    await task_states.register()
    for number in range(3):
        await task_states.fail(await task_states.claimed(), f"KeyError: 'row {number}'")
    await task_states.fail(await task_states.claimed(), "OSError: full")

    await board.run_once()
    first, second = (await client.problems()).problems

    assert (first.kind, first.hits, first.severity) == (
        ProblemKind.DEAD_LETTERS,
        f"3 tasks of {LAMBDA}",
        ProblemSeverity.WARNING,
    )
    assert (first.cause.exception, first.cause.message) == ("KeyError", "'…'")
    assert second.cause.exception == "OSError"
    await clock.tick(timedelta(days=2))
    old = (await problems(board, client))[ProblemKind.DEAD_LETTERS]
    assert old.severity is ProblemSeverity.INFORMATION


async def test_sessions_that_failed_tasks_block_are_one_problem_of_the_lambda(board, client, task_states):
    await task_states.register()
    for key in ("a", "b"):
        for _ in range(2):
            await client.schedule(LAMBDA, session=duly.Session(key, on_failure=duly.SessionPolicy.BLOCK))
    await task_states.end_all_that_may_run(Outcome.FATAL_FAILURE)

    blocked = (await problems(board, client))[ProblemKind.SESSIONS_BLOCKED]

    assert (blocked.subject, blocked.hits) == (LAMBDA, f"2 tasks of {LAMBDA}")
    assert blocked.text == f"failed tasks block 2 sessions of {LAMBDA}"
    assert [each.key for each in blocked.sessions] == ["a", "b"]
    assert blocked.session_count == 2
    redrives, unblocks = blocked.commands[1:]
    assert redrives.command == "duly redrive " + " ".join(
        each.blocked_by_task_id for each in blocked.sessions
    )
    assert unblocks.command == f"duly sessions unblock --blocked --lambda {LAMBDA}"


async def test_clocks_that_differ_are_one_problem_with_the_worst_first(board, client, fleet):
    for host, ahead in (("rack-1", 3), ("rack-2", -600)):
        report = a_report(f"{host}:1:a", name=host)
        report.clock_ahead.FromTimedelta(timedelta(seconds=ahead))
        await fleet.ReportHost(report)

    clocks = (await problems(board, client))[ProblemKind.CLOCKS_APART]

    assert (
        clocks.text == "the clock of rack-2 is 10 min behind Postgres's, and 1 other differ: repair NTP there"
    )
    assert [each.name for each in clocks.hosts] == ["rack-2", "rack-1"]


async def test_a_service_that_no_process_reports_is_critical_after_a_while(store, client, clock):
    board = ProblemBoard(store, every=0 * SECOND, expected_services=(AS_STORE_CONSUMER, AS_HSC))

    assert await problems(board, client) == {}
    await clock.tick(MINUTE)
    async with reporting(store, AS_STORE_CONSUMER, "127.0.0.1:1"):
        await until_reported(store)
        away = (await problems(board, client))[ProblemKind.SERVICE_AWAY]

    assert (away.subject, away.severity) == ("hsc", ProblemSeverity.CRITICAL)
    assert away.text == "no HSC reports itself: no worker gets a task"


async def test_a_service_is_not_away_until_it_could_report_to_a_store_that_is_back(
    store, client, clock, monkeypatch
):
    passed = [0.0]
    board = ProblemBoard(store, every=0 * SECOND, expected_services=(AS_HSC,), seconds=lambda: passed[0])
    async with reporting(store, AS_HSC, "127.0.0.1:1"):
        await until_reported(store)
    await ran(store, "update service_instance set stopped = false")
    assert await problems(board, client) == {}

    async def lost(*_):
        raise StoreUnavailableError("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "run", lost)
        with pytest.raises(StoreUnavailableError):
            await board.run_once()
    await clock.tick(9 * MINUTE)
    passed[0] += 9 * 60
    assert await problems(board, client) == {}

    await clock.tick(2 * MINUTE)
    passed[0] += 2 * 60
    assert ProblemKind.SERVICE_AWAY in await problems(board, client)


async def test_a_pool_whose_driver_fails_says_why(board, store, client):
    await client.put_pool("mail", lambdas=[LAMBDA], maximum=3, driver="kube")
    await ran(
        store,
        """insert into pool_plan (pool, fence, desired, reasons, planned_at, desired_since, memory, failure, failed_since)
        values ('mail', 1, 1, '{}', duly_now(), duly_now(), '{}', 'no such Deployment', duly_now())""",
    )

    pool = (await problems(board, client))[ProblemKind.POOL_DRIVER_FAILS]

    assert pool.text == "the driver of the pool mail does not start or end workers: no such Deployment"
    assert pool.lambdas == (LAMBDA,)


async def test_a_token_that_expires_soon_is_said_before_it_does(board, client, clock):
    await client.create_token("ann", lifetime=timedelta(days=5), note="laptop")

    soon = (await problems(board, client))[ProblemKind.TOKEN_EXPIRES]
    await clock.tick(timedelta(days=4))
    sooner = (await problems(board, client))[ProblemKind.TOKEN_EXPIRES]

    assert soon.severity is ProblemSeverity.INFORMATION
    assert sooner.severity is ProblemSeverity.WARNING
    assert "of ann (laptop) expires in " in sooner.text


def test_a_store_is_slow_if_even_the_fastest_of_the_last_statements_took_long():
    now = datetime(2026, 11, 27, tzinfo=UTC)

    assert store_slow([2 * SECOND, SECOND / 100], now) == []
    (slow,) = store_slow([2 * SECOND, SECOND], now)
    assert slow.values["milliseconds"] == "1000"


def test_a_certificate_that_cannot_be_read_is_the_servers_matter(tmp_path):
    path = tmp_path / "cert.pem"
    path.write_text("no certificate")

    assert certificate_expiring(str(path), "frontend", datetime(2026, 11, 27, tzinfo=UTC)) == []
