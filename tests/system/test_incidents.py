"""The incidents of docs/operators/incidents.md: each is produced on a running installation, shown by the board, and ended by its command."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

import duly
from duly_local.ports import free_ports
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
OLD = """
import duly

app = duly.App()
@app.callback("mail.old")
def send(_):
    pass
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


def local_address(port: int) -> str:
    return f"127.0.0.1:{port}"


@contextmanager
def process(
    folder: Path, service: str, listen: str, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service by itself, as a unit of systemd does."""
    with (folder / f"{service}.log").open("ab") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "duly_cli", service, "--listen", listen],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(_PATIENCE.total_seconds())
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def alive(client: duly.Client) -> set[str]:
    """Return the services that report themselves; empty: the Frontend does not answer yet."""
    try:
        return {each.service for each in client.services(alive=True)}
    except duly.UnavailableError:
        return set()


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


def nobody_serves_mail_old(running: Installation, client: duly.Client) -> None:
    """A worker of `mail.old` has registered it, and ended."""
    with running.worker_of(OLD, "mail.old"):
        pass
    wait_until(
        "nobody serves mail.old",
        lambda: not [*client.hosts(lambda_name="mail.old", states=[duly.HostState.ALIVE])],
    )


def test_tasks_of_a_lambda_that_was_renamed_are_named_with_the_host_that_served_it(running, client, worker):
    nobody_serves_mail_old(running, client)
    task = client.schedule("mail.old", {})

    no_host = shown(client, Kind.NO_HOST)
    done(running, command(no_host, "hosts", "list"))
    done(running, "duly cancel --lambda mail.old", "--yes")

    assert no_host.lambdas == ("mail.old",)
    assert client.get(task).status is duly.TaskStatus.CANCELLED
    gone(client, Kind.NO_HOST)


def old_lambda_is_gone(running: Installation, client: duly.Client) -> str:
    """Somebody deleted `mail.old` while a transaction scheduled a task of it; the task's id."""
    nobody_serves_mail_old(running, client)
    with psycopg.connect(running.dsn) as scheduling:
        row = scheduling.execute("select duly_schedule('mail.old', '{}')::text").fetchone()
        assert row is not None
        done(running, "duly lambdas delete mail.old")
    return str(row[0])


def test_tasks_of_a_deleted_lambda_run_once_it_is_restored_and_its_worker_is_started_again(running, client):
    task = old_lambda_is_gone(running, client)

    lambda_gone = shown(client, Kind.LAMBDA_GONE)
    done(running, command(lambda_gone, "lambdas", "restore"))
    with running.worker_of(OLD, "mail.old"):
        ended = client.wait(task, timeout=_PATIENCE)

    assert lambda_gone.lambdas == ("mail.old",)
    assert ended.status is duly.TaskStatus.SUCCESS
    gone(client, Kind.LAMBDA_GONE)


def test_tasks_of_a_deleted_lambda_are_ended_by_the_command_of_their_problem(running, client):
    task = old_lambda_is_gone(running, client)

    lambda_gone = shown(client, Kind.LAMBDA_GONE)
    done(running, command(lambda_gone, "cancel", "--lambda"), "--yes")

    assert client.get(task).status is duly.TaskStatus.CANCELLED
    gone(client, Kind.LAMBDA_GONE)


def test_an_hsc_that_is_away_is_named_and_another_ends_it(postgres_server, tmp_path):
    name = postgres_server.create()
    addresses = dict(
        zip(("frontend", "store-consumer", "hsc"), map(local_address, free_ports(3)), strict=True)
    )
    environment = {"DULY_STORE_DSN": postgres_server.dsn_of(name)}
    with ExitStack() as closing:
        closing.callback(postgres_server.drop, name)
        for service in ("frontend", "store-consumer"):
            closing.enter_context(process(tmp_path, service, addresses[service], environment))
        with process(tmp_path, "hsc", addresses["hsc"], environment) as hsc:
            client = closing.enter_context(duly.Client(addresses["frontend"]))
            wait_until("the HSC is known", lambda: "hsc" in alive(client))
            hsc.send_signal(signal.SIGKILL)
            hsc.wait()
            away = shown(client, Kind.SERVICE_AWAY)
        _, service = shlex.split(command(away, "hsc"))
        closing.enter_context(process(tmp_path, service, addresses["hsc"], environment))

        assert (away.subject, away.severity) == ("hsc", duly.ProblemSeverity.CRITICAL)
        gone(client, Kind.SERVICE_AWAY)


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
