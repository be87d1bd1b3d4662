"""The fixtures by which people test their applications, used as people use them."""

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

import psycopg
import pytest

import duly
from duly import transactional
from duly_local.testing import DulyTestError
from duly_local.testing.report import section
from duly_local.testing.stack import TestStack
from tests.fixtures.forked_process import ROOT

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Done:
    """What the callbacks under test did; each test begins with nothing."""

    def __init__(self) -> None:
        self.calls: list[object] = []


done = Done()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.calls.clear()


def _app(version: str = "1", pinned: bool | Literal["only"] = True) -> duly.App:
    app = duly.App(owner="tests", version=version, pinned=pinned)

    @app.callback("mail.send", max_attempts=4, backoff=duly.Backoff(initial=HOUR, maximum=DAY))
    def send(mail: dict, ctx: duly.TaskContext) -> dict:
        done.calls.append(mail.get("to"))
        if ctx.attempt < mail.get("works_at", 1):
            raise ConnectionError("the relay is down")
        return {"attempt": ctx.attempt, "version": version, "due_at": ctx.due_at.isoformat()}

    @app.callback("report.make")
    def report(_: object, ctx: duly.TaskContext) -> str:
        assert ctx.tick_at is not None
        done.calls.append(ctx.tick_at)
        return ctx.tick_at.isoformat()

    @app.callback("file.index", max_crashes=3)
    def index(parts: int, ctx: duly.TaskContext) -> int:
        begin = ctx.checkpointed or 0
        for part in range(begin, parts):
            done.calls.append(part)
            ctx.checkpoint(part + 1)
            if part == 1 and begin == 0:
                raise ConnectionError("in the middle")
        return begin

    @app.callback("order.poll")
    def poll() -> duly.Snooze:
        return duly.Snooze(timedelta(minutes=1))

    @app.callback("order.approve", max_attempts=1)
    def approve(_: object, ctx: duly.TaskContext) -> duly.CompleteLater:
        done.calls.append(ctx.completion_token())
        return duly.CompleteLater(DAY)

    @app.callback("mail.ask")
    def ask(key: str, ctx: duly.TaskContext) -> object:
        if ctx.checkpointed is None:
            done.calls.append(ctx.event_address(key, title="Well?").url)
            ctx.checkpoint("asked")
        return ctx.wait_for(key)

    @app.callback("mail.index", batch=duly.Batch(size=3), max_attempts=2)
    def index_mails(mails: list[str]) -> list[object]:
        done.calls.append(mails)
        return [ValueError(mail) if mail == "bad" else mail.upper() for mail in mails]

    @app.callback("picture.scale")
    async def scale(picture: duly.Attachment, ctx: duly.TaskContext) -> dict:
        await asyncio.to_thread(lambda: None)
        content = await asyncio.to_thread(picture.read)
        return {"half": await asyncio.to_thread(ctx.attach, content[: len(content) // 2], name="half.png")}

    return app


@pytest.fixture(scope="module")
def duly_app() -> duly.App:
    return _app()


def outcomes(runs, name="mail.send"):
    return [run.outcome and run.outcome.name for run in runs if run.lambda_name == name]


def test_a_week_of_retries_and_hourly_ticks_is_stepped_through(duly_client, duly_worker, duly_clock):
    began_at = duly_clock.now
    duly_client.create_table("report.hourly", "report.make", cron="0 * * * *")
    task = duly_client.schedule("mail.send", {"to": "ann", "works_at": 4})
    at_once = duly_worker.run_due()
    runs = duly_clock.advance(7 * DAY)

    assert outcomes(at_once) == ["RETRIABLE_FAILURE"]
    assert outcomes(runs) == ["RETRIABLE_FAILURE", "RETRIABLE_FAILURE", "SUCCESS"]
    found = duly_client.get(task)
    assert (found.status, found.failures, found.result["attempt"]) == (duly.TaskStatus.SUCCESS, 3, 4)
    assert found.finished_at is not None
    assert began_at < found.finished_at < began_at + timedelta(hours=1 + 2 + 4)
    assert duly_clock.now == began_at + 7 * DAY
    ticks = [call for call in done.calls if isinstance(call, datetime)]
    assert len(ticks) == 7 * 24
    assert {later - tick for tick, later in pairwise(ticks)} == {HOUR}
    assert [run.at for run in runs if run.lambda_name == "report.make"] == ticks


def test_a_test_begins_with_no_tasks_and_by_the_clock_of_its_host(duly_client, duly_clock):
    assert [*duly_client.list()] == []
    assert abs(duly_clock.now - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_callback_makes_an_address_with_its_claim(duly_client, duly_worker):
    task = duly_client.schedule("mail.ask", "mail-7/answer")
    duly_worker.run_due()
    duly_client.send_event("mail-7/answer", True)

    duly_worker.run_due()

    (address,) = done.calls
    assert address == f"https://duly.test/events/{address.rpartition('/')[2]}"
    assert duly_client.get(task).result is True


def test_a_node_that_waits_for_an_event_needs_no_callback(duly_client, duly_worker, duly_clock):
    with duly_client.graph("order") as g:
        approval = g.wait("approval", timeout=DAY)
        g.task("mail.send", {"to": "approved"}, after=approval)
        g.task("mail.send", {"to": "too late"}, after=g.wait("other", timeout=HOUR).failed)
    assert duly_worker.run_due() == []

    runs = duly_clock.advance(2 * HOUR)
    duly_client.send_event(f"{g.graph_id}/approval", True)
    runs += duly_worker.run_due()

    assert outcomes(runs) == ["SUCCESS", "SUCCESS"]
    assert done.calls[-2:] == ["too late", "approved"]


def test_a_delay_an_expiry_and_an_end_without_a_run(duly_client, duly_worker, duly_clock):
    later = duly_client.schedule("mail.send", {"to": "later"}, delay=DAY)
    never = duly_client.schedule(
        "mail.send", {"to": "never"}, delay=2 * DAY, expires_at=duly_clock.now + DAY + HOUR
    )
    assert duly_worker.run_due() == []

    duly_clock.advance(DAY - timedelta(seconds=1))
    assert done.calls.count("later") == 0
    duly_clock.advance(timedelta(seconds=1))
    assert done.calls.count("later") == 1
    duly_clock.advance(3 * DAY)

    assert duly_client.get(later).status is duly.TaskStatus.SUCCESS
    assert duly_client.get(never).status is duly.TaskStatus.FATAL_FAILURE
    assert "never" not in done.calls


def test_what_never_ends_is_told_after_so_many_runs(duly_client, duly_worker, duly_clock):
    task = duly_client.schedule("order.poll")

    with pytest.raises(DulyTestError, match=rf"20 runs.*\nMost often: order\.poll {task.task_id}"):
        duly_clock.run_until_idle(most=20)
    with pytest.raises(
        DulyTestError, match="after 1:00:00 of the stepped clock there are still tasks that wait"
    ):
        duly_clock.run_until_idle(within=HOUR)


def test_a_wait_steps_until_the_end_and_says_why_there_is_none(duly_client, duly_worker, duly_clock):
    began_at = duly_clock.now
    task = duly_client.schedule("mail.send", {"works_at": 3}, delay=DAY)
    stuck = duly_client.schedule("mail.send", {}, session="s", delay=DAY)
    with duly_client.graph("mails") as graph:
        graph.task("mail.send", {}, delay=2 * DAY)

    with pytest.raises(
        duly.WaitTimeoutError, match=r"within 1:00:00 of the stepped clock: \S+ \S+ \([A-Z_]+\)$"
    ):
        duly_client.wait(task, timeout=HOUR)
    assert duly_clock.now == began_at + HOUR
    assert duly_client.wait(task).result["attempt"] == 3
    assert duly_client.wait_many([task, stuck])[1].status is duly.TaskStatus.SUCCESS
    assert duly_client.wait_graph(graph.graph_id).status is duly.GraphStatus.SUCCEEDED
    assert duly_clock.now < began_at + 3 * DAY
    duly_client.create_table("report.hourly", "report.make", cron="0 * * * *")  # it never ends
    duly_client.put_gate("deploy", duly.GateKind.PAUSE, "mail.send", reason="deploy")
    held = duly_client.schedule("mail.send", {})
    with pytest.raises(
        DulyTestError, match=r"nothing more happens by itself, and mail\.send .* is NEW: .*deploy"
    ):
        duly_client.wait(held)


def test_a_clock_does_not_go_back(duly_clock):
    for backwards in (
        lambda: duly_clock.advance(-HOUR),
        lambda: duly_clock.advance_to(duly_clock.now - HOUR),
        lambda: duly_clock.advance_to(datetime(2090, 1, 1)),  # noqa: DTZ001 (the point)
    ):
        with pytest.raises(DulyTestError, match=r"does not go back|has no time zone"):
            backwards()


def test_faults_are_charged_as_real_ones_are(duly_client, duly_worker, duly_clock):
    failed, crashed, vanished = (
        duly_client.schedule("mail.send", {"to": to}, priority=priority)
        for to, priority in (
            ("failed", duly.Priority.URGENT),
            ("crashed", duly.Priority.HIGH),
            ("vanished", duly.Priority.NORMAL),
        )
    )
    duly_worker.fail_next(TimeoutError("slow"), of="mail.send")
    duly_worker.crash_next(after_callback=True)
    duly_worker.vanish_next()

    first = duly_worker.run_due()
    left = [duly_client.get(task) for task in (failed, crashed, vanished)]
    duly_clock.run_until_idle()

    assert outcomes(first) == ["RETRIABLE_FAILURE", "CRASHED", None]
    assert [(task.failures, task.crashes) for task in left] == [(1, 0), (0, 1), (0, 0)]
    assert left[0].failure is not None
    assert left[0].failure.message == "TimeoutError: slow"
    ended = [duly_client.get(task) for task in (failed, crashed, vanished)]
    assert {task.status for task in ended} == {duly.TaskStatus.SUCCESS}
    assert ended[2].crashes == 1  # nobody can know what a machine that is gone died of
    assert done.calls.count("crashed") == 2  # once before its process died
    assert done.calls.count("failed") == done.calls.count("vanished") == 1


def test_an_overrun_is_a_fault_like_others(duly_client, duly_worker):
    task = duly_client.schedule("mail.send", {})
    duly_worker.fail_next(duly.Interrupted())
    duly_worker.run_due()

    failure = duly_client.get(task).failure
    assert failure is not None
    assert failure.kind is duly.FailureKind.MAX_RUNTIME


def test_three_crashes_quarantine_a_task(duly_client, duly_worker, duly_clock):
    task = duly_client.schedule("file.index", 1)
    duly_worker.crash_next(of="file.index", times=3)
    duly_clock.run_until_idle()

    found = duly_client.get(task)
    assert (found.status, found.crashes) == (duly.TaskStatus.FATAL_FAILURE, 3)
    assert done.calls == []


def test_a_checkpoint_is_there_for_the_next_attempt(duly_client, duly_worker, duly_clock):
    task = duly_client.schedule("file.index", 4)
    duly_clock.run_until_idle()

    assert duly_client.get(task).result == 2
    assert done.calls == [0, 1, 2, 3]


def test_whoever_has_the_token_completes_the_task_or_time_runs_out(duly_client, duly_worker, duly_clock):
    in_time, too_late = (duly_client.schedule("order.approve") for _ in range(2))
    duly_worker.run_due()
    duly_client.complete(done.calls[0], {"by": "ann"})
    duly_clock.advance(DAY + HOUR)

    found = [duly_client.get(task) for task in (in_time, too_late)]
    by_status = {task.status: task for task in found}
    assert by_status[duly.TaskStatus.SUCCESS].result == {"by": "ann"}
    assert duly.TaskStatus.FATAL_FAILURE in by_status


def test_sessions_graphs_and_rates_keep_their_order(duly_client, duly_worker, duly_clock):
    for number in range(3):
        duly_client.schedule("mail.send", {"to": number, "works_at": 2 if number == 0 else 1}, session="ann")
    duly_clock.run_until_idle()
    assert done.calls == [0, 0, 1, 2]

    done.calls.clear()
    with duly_client.graph("mails") as graph:
        first = graph.task("mail.send", {"to": "first"})
        graph.task("mail.send", {"to": "second"}, after=first)
    duly_clock.run_until_idle()
    assert done.calls == ["first", "second"]

    duly_client.put_resource("relay", capacity=10, rate=duly.Rate(1, HOUR))
    for _ in range(4):
        duly_client.schedule("mail.send", {"to": "paced"}, resources=["relay"])
    runs = duly_clock.run_until_idle()
    at = [run.at for run in runs if run.lambda_name == "mail.send"]
    assert len(at) == 4
    assert at[-1] - at[0] >= 2 * HOUR


def test_fair_keys_take_turns_from_the_first_run_on(duly_client, duly_worker):
    for key in "aaabb":
        duly_client.schedule("mail.send", {"to": key}, fair_key=key)
    duly_worker.run_due()

    assert "".join(done.calls[:4]) in ("abab", "baba")


def test_a_batch_is_one_call_and_each_of_its_tasks_ends_by_itself(duly_client, duly_worker, duly_clock):
    tasks = [duly_client.schedule("mail.index", mail) for mail in ("a", "bad", "c", "d")]
    duly_worker.run_due()
    assert done.calls == [["a", "bad", "c"], ["d"]]

    duly_worker.crash_next()
    duly_clock.run_until_idle()

    assert done.calls[2:] == [["bad"]]  # alone, after the crash that was charged
    assert [duly_client.get(task).result for task in tasks] == ["A", None, "C", "D"]
    assert (duly_client.get(tasks[1]).failures, duly_client.get(tasks[1]).crashes) == (2, 1)


def test_a_pause_ends_when_the_clock_says_so(duly_client, duly_worker, duly_clock):
    duly_client.put_gate("deploy", duly.GateKind.PAUSE, "mail.send", reason="deploy", duration=DAY)
    task = duly_client.schedule("mail.send", {"to": "ann"})
    assert outcomes(duly_clock.advance(DAY - HOUR)) == []

    runs = duly_clock.run_until_idle()

    assert outcomes(runs) == ["SUCCESS"]
    assert duly_client.get(task).status is duly.TaskStatus.SUCCESS


def test_a_changed_setting_holds_from_the_next_call_on(duly_client, duly_worker, duly_clock):
    duly_client.set_settings(
        {"frontend.horizon": "1h", "timing.heartbeat_timeout": "5m", "timing.claim_timeout": "5m"}
    )
    task = duly_client.schedule("mail.send", {"to": "ann"})
    duly_worker.vanish_next()
    duly_worker.run_due()

    assert outcomes(duly_clock.advance(timedelta(minutes=4))) == []
    assert outcomes(duly_clock.advance(timedelta(minutes=1))) == ["SUCCESS"]
    assert duly_client.get(task).crashes == 1
    with pytest.raises(duly.InvalidTaskError, match=r"frontend\.horizon|horizon"):
        duly_client.schedule("mail.send", {}, delay=2 * HOUR)


def test_a_watch_tells_what_the_steps_did(duly_client, duly_worker, duly_clock):
    duly_client.schedule("mail.send", {})
    duly_worker.run_due()  # while nobody watches
    watch = duly_client.watch(keep_for=DAY)
    task = duly_client.schedule("mail.send", {"works_at": 2})
    duly_clock.advance(2 * HOUR)

    told = [(event.kind.name, event.task_id) for event in watch.next_events(timedelta(seconds=5))]
    assert told == [("RUN_ENDED", task.task_id), ("TASK_ENDED", task.task_id)]


def test_callbacks_run_in_the_thread_of_the_test_so_that_mocks_and_breakpoints_work(
    duly_client, duly_worker, monkeypatch
):
    threads: list[threading.Thread] = []
    monkeypatch.setattr(done, "calls", Calling(lambda: threads.append(threading.current_thread())))
    duly_client.schedule("mail.send", {"to": "ann"})
    duly_worker.run_due()

    assert threads == [threading.current_thread()]


class Calling:
    """In place of the calls that are noted: calls a function."""

    def __init__(self, function) -> None:
        self._function = function

    def append(self, _: object) -> None:
        self._function()

    def clear(self) -> None:
        """Nothing is kept."""


async def test_an_async_test_runs_async_callbacks_with_attachments(
    duly_async_client, duly_worker, duly_clock
):
    async with duly_async_client as client:
        task = await client.schedule("picture.scale", duly.Attachment(b"12345678", name="picture.png"))
        (run,) = duly_worker.run_due()
        found = await client.get(task)
        half = await client.read_attachment(found.result["half"])

    assert run.outcome is duly.Outcome.SUCCESS
    assert half == b"1234"


def test_each_version_has_a_worker_of_its_own(duly_client, duly_worker, duly_worker_of, duly_clock):
    newer = duly_worker_of(_app("2"))
    old = duly_client.schedule("mail.send", {"to": "old"}, lambda_version="1")
    new = duly_client.schedule("mail.send", {"to": "new"}, lambda_version="2")
    duly_clock.advance(timedelta(seconds=1))

    assert [duly_client.get(task).result["version"] for task in (old, new)] == ["1", "2"]
    assert [len(worker.runs) for worker in (duly_worker, newer)] == [1, 1]


def test_a_worker_of_pinned_tasks_only_gets_what_a_ramp_sends(
    duly_client, duly_worker, duly_worker_of, duly_clock
):
    newer = duly_worker_of(_app("2", pinned="only"))
    before = duly_client.schedule("mail.send", {"to": "ann"})
    duly_clock.advance(timedelta(seconds=1))
    duly_client.ramp_lambda("mail.send", "2", 100, force=True)
    sent = duly_client.schedule("mail.send", {"to": "bob"})
    duly_clock.advance(timedelta(seconds=1))

    assert [duly_client.get(task).result["version"] for task in (before, sent)] == ["1", "2"]
    assert [len(worker.runs) for worker in (duly_worker, newer)] == [1, 1]
    in_force = duly_client.get_lambda("mail.send").in_force
    assert in_force is not None
    assert (in_force.version, str(in_force.ramp)) == ("1", "100% to version 2")


def test_a_client_of_the_application_needs_no_address(duly_client, duly_worker, duly_address):
    with duly.Client() as client:
        client.schedule("mail.send", {"to": "ann"})

        assert client.address == duly_address
    assert duly_worker.run_one().outcome is duly.Outcome.SUCCESS
    assert duly_worker.run_one() is None


def test_what_is_scheduled_in_sql_runs_too(duly_client, duly_worker, duly_dsn):
    with psycopg.connect(duly_dsn) as connection:
        task_id = transactional.schedule(connection, "mail.send", {"to": "ann"})
        assert duly_worker.run_due() == []  # it is not committed yet
    duly_worker.run_due()

    assert duly_client.get(str(task_id)).status is duly.TaskStatus.SUCCESS


def test_a_callback_cannot_step_the_clock(duly_client, duly_worker, duly_clock, monkeypatch):
    monkeypatch.setattr(done, "calls", Calling(lambda: duly_clock.advance(HOUR)))
    task = duly_client.schedule("mail.send", {"to": "ann"})
    (run,) = duly_worker.run_due()
    monkeypatch.undo()

    assert run.message.startswith("DulyTestError: a callback cannot")
    assert duly_client.get(task).failures == 1


def test_people_see_what_ran_and_what_each_task_waits_for(duly_client, duly_worker, duly_clock, duly_stack):
    duly_client.schedule("mail.send", {"works_at": 9})
    duly_clock.advance(timedelta(days=1))
    duly_client.schedule("mail.send", {}, delay=DAY)

    shown = section(duly_stack)

    assert "1 day, 0:00:00 after the test began" in shown
    assert shown.count("RETRIABLE_FAILURE: ConnectionError: the relay is down") == 4
    assert "it failed for good" in shown
    assert "+0:00:00  scheduled" in shown
    assert "it is due in 1 d\n" in shown
    assert "no host" not in shown


SUITE = """
from datetime import timedelta

def test_it(duly_client, duly_worker, duly_clock, capsys):
    duly_client.schedule("hello.greet", {"name": 3})
    duly_clock.advance(timedelta(hours=1))
    assert capsys.readouterr().out == ""
    assert duly_worker.runs == []
"""


@pytest.mark.long  # a pytest of its own, with a Postgres of its own
def test_a_failed_test_shows_its_tasks_and_the_ini_file_names_the_application(tmp_path: Path):
    (tmp_path / "test_hello.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nduly_app = examples.hello:app\npythonpath = {ROOT}\n")
    command = [sys.executable, "-m", "pytest", "-p", "duly_local.testing.plugin", "-p", "no:cacheprovider"]

    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    shown = ran.stdout.partition("Duly: tasks and their history")[2]
    assert "hello.greet" in shown
    assert "FATAL_FAILURE" in shown
    assert "+0:00:00  scheduled" in shown


def test_the_plugin_loads_nothing_of_duly_before_it_is_used():
    program = (
        "import sys, pytest; before = set(sys.modules); import duly_local.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == ["duly_local", "duly_local.testing", "duly_local.testing.plugin"]


def test_arguments_of_another_type_are_refused_with_one_that_is_right(
    duly_client, duly_clock, duly_worker, duly_session, tmp_path
):
    for call, said in (
        (lambda: duly_clock.advance(7), r"duration must be a timedelta, such as timedelta\(days=7\), not 7"),
        (lambda: duly_clock.advance_to("2038-03-27"), "instant must be a datetime"),
        (lambda: duly_clock.run_until_idle(within=7), "within must be a timedelta"),
        (lambda: duly_client.wait("no task", timeout=7), "timeout must be a timedelta"),
        (lambda: duly_worker.fail_next("down"), "error must be a BaseException, such as ConnectionError"),
        (
            lambda: TestStack(duly_session, tmp_path, "2038-03-27"),
            "duly_begins_at must be a datetime, such as",
        ),
    ):
        with pytest.raises(DulyTestError, match=said):
            call()
