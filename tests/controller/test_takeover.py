"""What a Controller does for the tasks of Executors that died with theirs."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from duly_controller.__main__ import build
from duly_controller.crash_reporter import CrashReporter
from duly_controller.executor_registry import AttachedExecutor, ExecutorRegistry
from duly_controller.takeover import Takeover
from duly_core.host.claim_journal import ClaimJournal, Owner
from duly_core.host.journal_folder import JournalFolder
from duly_core.host.slot_board import SlotWriter
from duly_core.process.clock import since_boot_ns
from duly_core.process.identity import started
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_core.tasks.claim_tokens import new_prefix
from duly_wire.ids import new_task_id
from duly_wire.v1 import controller_pb2, hsc_pb2
from tests.fixtures.host import APP, LIVELY, SECOND, Command, Commands, Journal, claimed
from tests.fixtures.programs import is_alive
from tests.fixtures.scripted_hsc import ScriptedHsc
from tests.fixtures.waiting import until

LEASE = timedelta(seconds=25)
MINUTE = 60
NO_PROCESS = 2**22 + 1
SOON = 10 * SECOND
"""Long before any lease of LIVELY ends, and long enough for a busy machine."""


class AbandonedHost:
    """A folder of journals, and a Controller's part that takes them over."""

    def __init__(self, folder: JournalFolder, hsc: ScriptedHsc, stub: object) -> None:
        self.folder = folder
        self.hsc = hsc
        self.stub = stub
        self.crash_reporter = CrashReporter(stub, folder, LEASE, SECOND / 2)  # type: ignore[arg-type]
        self.takeover = self.with_lease(LEASE)
        self.task, self.unstarted = new_task_id().bytes, new_task_id().bytes
        self.prefix = new_prefix()
        self.owner = replace(Owner.this_process("host:1:abc"), pid=NO_PROCESS)

    def with_lease(self, lease: timedelta) -> Takeover:
        return Takeover(self.folder, ExecutorRegistry(lambda _: None), self.crash_reporter, lease)

    def leave(self, owner: Owner) -> Path:
        """The journal of an Executor that held two tasks, of which one ran, and that had asked for more."""
        path = self.folder.path / self.folder.name_of(owner.executor_id)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        board = os.open(path.with_suffix(".board"), os.O_RDWR | os.O_CREAT, 0o600)
        self.fill(ClaimJournal(descriptor, board, owner, 1, 2, 8))
        os.close(descriptor)
        os.close(board)
        return path

    def fill(self, journal: ClaimJournal) -> None:
        journal.add(self.task, b"t" * 16)
        journal.add(self.unstarted, b"u" * 16)
        journal.note_prefix(self.prefix)
        SlotWriter(journal.board.descriptor, 0, 2).started(0, self.task, since_boot_ns())

    async def is_reported(self, *, started_now: bool = True) -> None:
        await self.hsc.until(lambda: self.prefix in self.hsc.prefixes)
        (result,) = self.hsc.results
        ago = time.time() - result.started_at.ToNanoseconds() / 1e9
        assert 0 <= ago < MINUTE if started_now else not result.HasField("started_at")
        assert (result.claim.task_id, result.outcome) == (self.task, hsc_pb2.OUTCOME_CRASHED)
        assert self.hsc.releases == [hsc_pb2.Claim(task_id=self.unstarted, token=b"u" * 16)]

    async def is_over(self) -> None:
        await self.crash_reporter.finish(SOON)
        assert list(self.folder.path.iterdir()) == []


@pytest.fixture
async def abandoned(tmp_path: Path, scripted_hsc: ScriptedHsc) -> AsyncIterator[AbandonedHost]:
    channel = open_channel(scripted_hsc.address, RpcSettings())
    folder = JournalFolder.open(str(tmp_path / "journals"), "")
    yield AbandonedHost(folder, scripted_hsc, hsc_stub(channel))
    await channel.close()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


# ---- whole workers, as processes ---------------------------------------------------------------------------


@dataclass
class Workers:
    """Workers on one host, that ask one HSC for work."""

    hsc: ScriptedHsc
    commands: Commands
    address: str
    folder: JournalFolder
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    serving: asyncio.Task[None] | None = None

    def start(self, *arguments: object, **environment: str) -> Command:
        """Start a whole worker of the test application."""
        settings = {
            "DULY_CONTROLLER_HSC_ADDRESS": self.hsc.address,
            "DULY_CONTROLLER_FRONTEND_ADDRESS": self.hsc.address,
            "DULY_CONTROLLER_LISTEN": f"{self.address}-worker",
            "DULY_EXECUTOR_JOURNAL_FOLDER": str(self.folder.path),
        }
        return self.commands.start(
            "duly_cli", "worker", APP, *arguments, **{**LIVELY, **settings, **environment}
        )

    def executor(self) -> Command:
        """Start an Executor of `serve`'s Controller."""
        settings = {
            "DULY_EXECUTOR_HSC_ADDRESS": self.hsc.address,
            "DULY_EXECUTOR_JOURNAL_FOLDER": str(self.folder.path),
        }
        return self.commands.start(
            "duly_executor", APP, "--controller", self.address, **{**LIVELY, **settings}
        )

    def serve(self) -> None:
        """Start another worker, as far as its Controller goes."""
        serve = build(
            [], listen=self.address, hsc_address=self.hsc.address, frontend_address=self.hsc.address
        )
        self.serving = asyncio.create_task(serve(self.stop))

    async def end(self) -> None:
        self.stop.set()
        if self.serving is not None:
            await self.serving


@pytest.fixture
async def workers(
    scripted_hsc: ScriptedHsc, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Workers]:
    folder = JournalFolder.open(str(tmp_path / "journals"), "")
    settings = {
        "DULY_RPC_CALL_TIMEOUT": "500ms",
        "DULY_RPC_SHUTDOWN_GRACE": "100ms",
        "DULY_EXECUTOR_JOURNAL_FOLDER": str(folder.path),
    }
    for name, value in {**LIVELY, **settings}.items():
        monkeypatch.setenv(name, value)
    made = Workers(scripted_hsc, commands, f"unix:{tmp_path}/controller.sock", folder)
    yield made
    for command in commands.started:
        command.clean_up()
    await made.end()


async def killed(worker: Command) -> None:
    """Kill its Controller and its Executor in one call."""
    os.killpg(worker.pid, signal.SIGKILL)
    await worker.exit_code()


async def test_of_a_worker_that_is_killed_as_a_whole_the_next_one_reports_what_ran_and_hands_back_the_rest(
    workers: Workers, journal: Journal
) -> None:
    hsc = workers.hsc
    running = [claimed("test.stubborn", journal.payload()) for _ in range(2)]
    suspect = claimed("test.stubborn", journal.payload(), crashes=1)  # it has a process of its own
    waiting = claimed("test.stubborn", journal.payload())
    worker = workers.start("--slots", 2, DULY_EXECUTOR_RECALL_AFTER="1h")
    hsc.hand_out(*running, suspect, waiting)
    pid = await journal.started(*running, suspect)
    await hsc.beat_of(waiting)

    await killed(worker)
    workers.serve()

    await hsc.until(lambda: all(hsc.result_of(task) for task in (*running, suspect)), SOON)
    assert {(result.outcome, result.worker_died) for result in hsc.results} == {
        (hsc_pb2.OUTCOME_CRASHED, True)
    }
    await hsc.release_of(waiting)
    assert hsc.result_of(waiting) is None
    assert not is_alive(pid)


async def test_what_was_claimed_for_a_worker_and_never_reached_it_is_handed_back_by_its_prefix(
    workers: Workers, journal: Journal
) -> None:
    hsc = workers.hsc
    running = claimed("test.stubborn", journal.payload())
    worker = workers.start()
    hsc.hand_out(running)
    await journal.started(running)
    await hsc.until(lambda: len(hsc.asked) > 1)
    under_way = {request.token_prefix for request in hsc.asked} - {running.claim.token[:-2]}

    await killed(worker)
    workers.serve()

    await hsc.until(lambda: set(hsc.prefixes) == under_way, SOON)
    assert hsc.result_of(running) is not None
    ends = [method for method in hsc.calls if method in ("SetResults", "Release")]
    assert ends[:2] == ["SetResults", "Release"]


async def test_of_an_executor_that_dies_alone_its_controller_reports_what_its_journal_says(
    workers: Workers, journal: Journal
) -> None:
    hsc = workers.hsc
    running = claimed("test.stubborn", journal.payload())
    workers.serve()
    executor = workers.executor()
    hsc.hand_out(running)
    await journal.started(running)

    executor.kill(signal.SIGKILL)

    assert (await hsc.end_of(running)).outcome == hsc_pb2.OUTCOME_CRASHED
    await hsc.until(lambda: hsc.prefixes)
    await until(lambda: workers.folder.names() == [])


async def test_what_a_journaled_executor_held_is_reported_though_the_hsc_is_away_for_longer_than_a_lease(
    abandoned: AbandonedHost,
) -> None:
    hsc, owner = abandoned.hsc, abandoned.owner
    crash_reporter = CrashReporter(abandoned.stub, abandoned.folder, SECOND, SECOND / 2)  # type: ignore[arg-type]
    abandoned.leave(owner)
    hsc.away = {"SetResults"}
    loop = asyncio.get_running_loop()
    lease_ends_at = loop.time() + 1.2

    crash_reporter.report_crash(AttachedExecutor(owner.executor_id, frozenset(), -1, -1), 0)
    await until(lambda: loop.time() > lease_ends_at and hsc.calls.count("SetResults") > 1)
    hsc.away.clear()

    await abandoned.is_reported()
    await crash_reporter.finish(SOON)
    assert abandoned.folder.names() == []


async def test_what_an_executor_without_a_journal_file_held_is_read_from_its_memory(
    abandoned: AbandonedHost,
) -> None:
    journal = ClaimJournal.without_file(abandoned.owner, 1, 2, 8)
    abandoned.fill(journal)
    attached = ExecutorRegistry(lambda _: None)
    request = controller_pb2.AttachExecutorRequest(
        executor_id=abandoned.owner.executor_id,
        pid=os.getpid(),
        board_fd=journal.board.descriptor,
        journal_fd=journal.descriptor,
    )
    executor = attached.attach(request, frozenset())
    os.close(journal.board.descriptor)
    os.close(journal.descriptor)

    abandoned.crash_reporter.report_crash(executor, 0)
    attached.close()

    await abandoned.is_reported()
    await abandoned.is_over()


async def test_an_executor_that_outlives_its_controller_is_left_alone_by_others(
    workers: Workers, journal: Journal, abandoned: AbandonedHost
) -> None:
    task = claimed("test.wait", journal.payload())
    workers.serve()
    executor = workers.executor()
    workers.hsc.hand_out(task)
    await journal.started(task)
    await workers.end()
    (name,) = workers.folder.names()
    abandoned.leave(abandoned.owner)

    await abandoned.takeover.look()
    await abandoned.is_reported()
    await abandoned.crash_reporter.finish(SOON)

    assert workers.folder.names() == [name]
    assert workers.hsc.result_of(task) is None
    assert executor.process.poll() is None


async def test_a_worker_that_is_stopped_leaves_no_journal(workers: Workers, journal: Journal) -> None:
    task = claimed("test.wait", journal.payload())
    worker = workers.start()
    workers.hsc.hand_out(task)
    await journal.started(task)
    assert len(workers.folder.names()) == 1

    journal.let_go()
    await workers.hsc.end_of(task)
    worker.kill(signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert workers.folder.names() == []


@pytest.mark.long  # waits until a Controller gives up
async def test_what_a_controller_cannot_report_before_it_ends_is_left_to_the_next(
    workers: Workers, journal: Journal, abandoned: AbandonedHost
) -> None:
    hsc = workers.hsc
    running = claimed("test.stubborn", journal.payload())
    workers.serve()
    executor = workers.executor()
    hsc.hand_out(running)
    await journal.started(running)
    hsc.away = {"SetResults"}
    executor.kill(signal.SIGKILL)
    await until(lambda: "SetResults" in hsc.calls)

    await workers.end()
    hsc.away = set()
    await abandoned.takeover.look()

    assert (await hsc.end_of(running)).outcome == hsc_pb2.OUTCOME_CRASHED
    await abandoned.is_over()


# ---- journals ----------------------------------------------------------------------------------------------


async def test_a_journal_without_an_owner_is_reported_and_removed(abandoned: AbandonedHost) -> None:
    abandoned.leave(abandoned.owner)

    await abandoned.takeover.look()

    await abandoned.is_reported()
    await abandoned.is_over()
    assert abandoned.hsc.calls == ["SetResults", "Release", "Release", "Release"]


async def test_all_that_shared_a_call_with_the_task_on_the_board_have_crashed(
    abandoned: AbandonedHost,
) -> None:
    waiting = new_task_id().bytes

    def fill(journal: ClaimJournal) -> None:
        places = [journal.add(task_id, b"t" * 16) for task_id in (abandoned.task, abandoned.unstarted)]
        journal.note_batch(places, 1)
        journal.note_batch([journal.add(waiting, b"w" * 16)], 2)
        SlotWriter(journal.board.descriptor, 0, 2).started(0, abandoned.task, since_boot_ns(), 2)

    abandoned.fill = fill  # type: ignore[method-assign]
    abandoned.leave(abandoned.owner)

    await abandoned.takeover.look()
    await abandoned.hsc.until(lambda: abandoned.hsc.releases)

    crashed = {result.claim.task_id for result in abandoned.hsc.results}
    assert crashed == {abandoned.task, abandoned.unstarted}
    assert all(result.worker_died and result.started_at.seconds for result in abandoned.hsc.results)
    assert [claim.task_id for claim in abandoned.hsc.releases] == [waiting]
    await abandoned.is_over()


async def test_a_cell_that_is_away_holds_up_no_report_to_another(abandoned: AbandonedHost) -> None:
    waiting = new_task_id().bytes

    def fill(journal: ClaimJournal) -> None:
        journal.add(abandoned.task, b"t" * 16, "a")
        journal.add(abandoned.unstarted, b"u" * 16, "b")
        journal.add(waiting, b"w" * 16, "a")
        journal.note_prefix(abandoned.prefix)
        SlotWriter(journal.board.descriptor, 0, 2).started(0, abandoned.task, since_boot_ns())

    abandoned.fill = fill  # type: ignore[method-assign]
    abandoned.leave(abandoned.owner)
    abandoned.hsc.away_cells.add("b")

    await abandoned.takeover.look()
    await abandoned.hsc.until(lambda: abandoned.prefix in abandoned.hsc.prefixes)

    (crash,) = abandoned.hsc.results
    assert (crash.claim.task_id, crash.claim.cell) == (abandoned.task, "a")
    assert abandoned.hsc.releases == [hsc_pb2.Claim(task_id=waiting, token=b"w" * 16, cell="a")]
    abandoned.hsc.away_cells.clear()
    await abandoned.hsc.until(lambda: len(abandoned.hsc.releases) == 2)
    assert abandoned.hsc.releases[1] == hsc_pb2.Claim(task_id=abandoned.unstarted, token=b"u" * 16, cell="b")
    await abandoned.is_over()


async def test_an_outage_of_the_hsc_delays_a_takeover_and_ends_none(abandoned: AbandonedHost) -> None:
    abandoned.leave(abandoned.owner)
    abandoned.hsc.away = {"SetResults", "Release"}
    await abandoned.takeover.look()
    await until(lambda: len(abandoned.hsc.calls) >= 3)

    abandoned.hsc.away = set()

    await abandoned.is_reported()
    await abandoned.is_over()


async def test_two_that_look_report_a_journal_once(abandoned: AbandonedHost) -> None:
    abandoned.leave(abandoned.owner)

    await abandoned.takeover.look()
    await abandoned.with_lease(LEASE).look()
    await abandoned.takeover.look()

    await abandoned.is_reported()
    await abandoned.is_over()


async def test_after_a_restart_of_the_host_nothing_is_killed_and_all_is_reported(
    abandoned: AbandonedHost, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.host.claim_journal.machine_id", lambda: "this machine")
    born = started(sleeper.pid)
    assert born is not None
    before = replace(abandoned.owner, boot_id="of before", machine_id="this machine")
    abandoned.leave(replace(before, pid=sleeper.pid, started=born))

    await abandoned.takeover.look()

    await abandoned.is_reported(started_now=False)
    assert sleeper.poll() is None


async def test_a_process_that_still_ends_is_killed_before_its_tasks_are_reported(
    abandoned: AbandonedHost, sleeper: "subprocess.Popen[bytes]"
) -> None:
    born = started(sleeper.pid)
    assert born is not None
    abandoned.leave(replace(abandoned.owner, pid=sleeper.pid, started=born))

    await abandoned.takeover.look()

    await abandoned.is_reported()
    assert not is_alive(sleeper.pid)


async def test_a_stranger_that_got_an_executors_number_lives_on(
    abandoned: AbandonedHost, sleeper: "subprocess.Popen[bytes]"
) -> None:
    born = started(sleeper.pid)
    assert born is not None
    abandoned.leave(replace(abandoned.owner, pid=sleeper.pid, started=born - 1))

    await abandoned.takeover.look()

    await abandoned.is_reported()
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param({"pid_namespace": "another"}, id="another pid namespace"),
        pytest.param({"boot_id": "another", "host": "another"}, id="another host"),
    ],
)
async def test_where_nothing_can_be_proved_a_journal_is_left_alone_until_its_leases_have_run_out(
    abandoned: AbandonedHost, strange: dict[str, str]
) -> None:
    path = abandoned.leave(replace(abandoned.owner, **strange))

    await abandoned.takeover.look()
    await abandoned.takeover.look()
    assert path.exists()
    impatient = abandoned.with_lease(timedelta())
    await impatient.look()
    await impatient.look()

    assert not path.exists()
    assert abandoned.hsc.calls == []


async def test_a_damaged_journal_is_removed_when_its_leases_have_run_out(abandoned: AbandonedHost) -> None:
    path = abandoned.folder.path / "damaged.claims"
    path.write_bytes(b"noise")

    await abandoned.takeover.look()
    assert path.exists()
    impatient = abandoned.with_lease(timedelta())
    await impatient.look()
    await impatient.look()

    assert not path.exists()
