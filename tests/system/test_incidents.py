"""The incidents of docs/operators/incidents.md: each is produced on a running installation, shown by the board, and ended by its command."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

import duly
from scripts.incident.installation import Installation, installation
from scripts.incident.waiting import wait_until

# long: starts a whole stack, and waits for several rounds of the board and for a host to fall silent
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

APP = """
import time
import duly

app = duly.App()
@app.callback("mail.send", max_attempts=1)
def send(mail):
    if mail.get("broken"):
        raise KeyError("recipient")

@app.callback("poison.run", max_attempts=1)
def poison(_):
    time.sleep(3000)

@app.callback("report.make", max_attempts=1)
def make(seconds):
    time.sleep(seconds)
"""
Kind = duly.ProblemKind
_PATIENCE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation(tmp_path_factory.mktemp("incidents")) as started:
        yield started


@pytest.fixture(scope="module")
def client(running: Installation) -> Iterator[duly.Client]:
    with duly.Client(running.address) as connected:
        yield connected


@pytest.fixture
def worker(running: Installation) -> Iterator[subprocess.Popen[bytes]]:
    with running.worker_of(APP, "mail.send") as started:
        yield started


def shell(running: Installation, line: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the board prints it."""
    program, *arguments = shlex.split(line)
    assert program == "duly"
    return subprocess.run(
        [sys.executable, "-m", "duly_cli", *arguments, *more],
        env=os.environ | {"DULY_ADDRESS": running.address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def shown(client: duly.Client, kind: duly.ProblemKind) -> duly.Problem:
    """Wait for a problem of this kind."""
    found: duly.Problem = wait_until(
        f"the board shows {kind.name}", lambda: next(iter(client.problems(kinds=[kind]).problems), None)
    )
    return found


def gone(client: duly.Client, kind: duly.ProblemKind) -> None:
    wait_until(f"{kind.name} is over", lambda: not client.problems(kinds=[kind]).problems)


def command(problem: duly.Problem, *words: str) -> str:
    """Return the advised command that begins with these words."""
    (line,) = [
        each.command for each in problem.commands if each.command.split()[1:][: len(words)] == [*words]
    ]
    return line


def done(running: Installation, line: str, *more: str) -> None:
    said = shell(running, line, *more)
    assert said.returncode == 0, said.stdout + said.stderr


def test_a_pause_is_ended_by_its_command(running, client, worker):
    client.put_gate("deploy", duly.GateKind.PAUSE, "mail.send", reason="a deploy")
    client.schedule("mail.send", {})

    paused = shown(client, Kind.PAUSED)
    healthy = shell(running, "duly status")
    done(running, command(paused, "gates", "delete"))

    assert healthy.returncode == 0
    assert "Healthy" in healthy.stdout
    gone(client, Kind.PAUSED)


def test_dead_letters_of_one_cause_are_redriven(running, client, worker):
    tasks = client.schedule_many([duly.NewTask("mail.send", {"broken": True}) for _ in range(5)])
    client.wait_many([each.task_id for each in tasks], timeout=_PATIENCE)

    letters = shown(client, Kind.DEAD_LETTERS)
    status = shell(running, "duly status")
    redrives = command(letters, "redrive")
    said = shell(running, redrives, "--yes")

    assert status.returncode == 1
    assert redrives in status.stdout
    assert said.stdout.startswith("redriven: 5")
    client.wait_many([each.task_id for each in tasks], timeout=_PATIENCE)
    client.purge(lambda_name="mail.send", statuses=[duly.TaskStatus.FATAL_FAILURE])
    gone(client, Kind.DEAD_LETTERS)


def test_a_blocked_session_is_unblocked(running, client, worker):
    session = duly.Session("customer-7", on_failure=duly.SessionPolicy.BLOCK)
    client.schedule("mail.send", {"broken": True}, session=session)
    waiting = client.schedule("mail.send", {}, session=session)

    blocked = shown(client, Kind.SESSIONS_BLOCKED)
    done(running, command(blocked, "sessions", "unblock"))

    assert [each.key for each in blocked.sessions] == ["customer-7"]
    assert client.wait(waiting, timeout=_PATIENCE).status is duly.TaskStatus.SUCCESS
    gone(client, Kind.SESSIONS_BLOCKED)
    client.purge(lambda_name="mail.send", statuses=[duly.TaskStatus.FATAL_FAILURE])


def test_a_lambda_that_holds_all_slots_is_named_and_its_tasks_are_killed(running, client, worker):
    (host,) = client.hosts(states=[duly.HostState.ALIVE])
    slots = sum(each.slots for each in host.executors)
    client.schedule_many([duly.NewTask("poison.run", None) for _ in range(slots)])
    wait_until(
        "all slots are held",
        lambda: len([*client.list(lambda_name="poison.run", statuses=[duly.TaskStatus.PROCESSING])]) == slots,
    )
    waiting = client.schedule("mail.send", {})

    held = shown(client, Kind.SLOTS_HELD)
    done(running, command(held, "cancel", "--kill"))

    assert held.subject == "poison.run"
    assert client.wait(waiting, timeout=_PATIENCE).status is duly.TaskStatus.SUCCESS
    left = [
        each.task_id for each in client.list(lambda_name="poison.run", statuses=[duly.TaskStatus.PROCESSING])
    ]
    client.cancel_many(left, kill=True)
    gone(client, Kind.SLOTS_HELD)


def test_a_full_resource_gets_another_capacity(running, client, worker):
    client.put_resource("database", 1)
    first, second = (client.schedule("report.make", seconds, resources=["database"]) for seconds in (600, 0))

    full = shown(client, Kind.RESOURCE_FULL)
    done(running, command(full, "resources", "set"))

    assert client.wait(second, timeout=_PATIENCE).status is duly.TaskStatus.SUCCESS
    client.cancel(first, kill=True)
    gone(client, Kind.RESOURCE_FULL)


def failed_runs_open(client: duly.Client, lambda_name: str) -> bool:
    client.schedule_many([duly.NewTask(lambda_name, {"broken": True}) for _ in range(10)])
    return any(gate.name.endswith(lambda_name) for gate in client.gates())


def test_an_open_breaker_is_named_with_what_fails(running, client, worker):
    client.put_breaker("mail.send", 0.5, minimum=5, window=timedelta(seconds=30), pause=timedelta(minutes=10))
    # the HSC learns of a breaker a moment later: runs that end before do not count
    wait_until("the breaker is open", lambda: failed_runs_open(client, "mail.send"))

    broken = shown(client, Kind.BREAKER_OPEN)
    listed = shell(running, command(broken, "dead-letters", "list"))
    done(running, command(broken, "breakers", "show"))
    done(running, "duly breakers delete mail.send")

    assert "KeyError" in listed.stdout
    gone(client, Kind.BREAKER_OPEN)


def test_a_machine_that_died_is_named_until_another_serves_its_lambdas(running, client):
    with running.worker_of(APP, "mail.send") as died:
        died.send_signal(signal.SIGKILL)
        died.wait()
        task = client.schedule("mail.send", {})
        no_host = shown(client, Kind.NO_HOST)
        done(running, command(no_host, "hosts", "list"))

    with running.worker_of(APP, "mail.send"):
        assert client.wait(task, timeout=_PATIENCE).status is duly.TaskStatus.SUCCESS
        gone(client, Kind.NO_HOST)


def test_a_postgres_that_stands_still_is_the_one_problem(running, client):
    processes = running.postgres()
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        away = shown(client, Kind.STORE_AWAY)
        status = shell(running, "duly status")
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)

    assert status.returncode == 1
    assert "CRITICAL    store away" in status.stdout
    assert command(away, "health") == "duly health"
    gone(client, Kind.STORE_AWAY)
