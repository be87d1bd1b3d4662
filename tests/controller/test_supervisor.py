"""The supervisor: children run for as long as it does, and not a moment longer."""

import json
import os
import signal
import socket
from datetime import timedelta

import pytest

from tests.fixtures.programs import Programs, RunningProgram, group_is_empty, is_alive
from tests.fixtures.waiting import wait_until

SUPERVISOR = """
import asyncio, json, signal, sys
from datetime import timedelta
from duly_core.errors import DulyError
from duly_local.merged_output import MergedOutput
from duly_local.signals import handled_by
from duly_local.child_spec import ChildSpec, SupervisionTiming
from duly_local.supervisor import Supervisor

async def main():
    children = json.loads(sys.argv[1])
    grace = timedelta(seconds=float(sys.argv[2]))
    output = MergedOutput()
    output.announce([child["name"] for child in children])
    specs = [
        ChildSpec(child["name"], (sys.executable, "-u", "-c", child["source"]), child.get("env", {}),
                  tuple(child.get("addresses", ())), tuple(child.get("depends_on", ())),
                  reloads=child.get("reloads", False))
        for child in children
    ]
    supervisor = Supervisor(specs, output, SupervisionTiming(grace=grace))
    supervisor.start()
    restarts = []
    restart = lambda: restarts.append(asyncio.ensure_future(supervisor.restart(specs[0].name)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, restart)
    with handled_by(supervisor.request_stop):
        await supervisor.run()

try:
    asyncio.run(main())
except DulyError as error:
    print("gave up:", error, flush=True)
    sys.exit(78)
"""

OBEDIENT = """
import os, signal, sys
from duly_core.process.parent import die_with_parent
def stop(*_):
    print("stops")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
die_with_parent()
print("runs as process", os.getpid())
while True:
    signal.pause()
"""

STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen(["sleep", "1000"])
print("helper", helper.pid)
print("runs as process", os.getpid())
while True:
    signal.pause()
"""

BADLY_SET_UP = """
import sys
print("duly frontend: store.dsn is not a Postgres address")
sys.exit(78)
"""

HEALTHY = """
import os, signal, socket
from duly_core.process.parent import die_with_parent
from duly_core.process.ready_pipe import take_ready_pipe, tell_serving
die_with_parent()
take_ready_pipe()
host, port = os.environ["LISTEN"].split(":")
listener = socket.create_server((host, int(port)))
print("will serve")
tell_serving(os.environ["LISTEN"])
signal.pause()
"""


def supervise(programs: Programs, *children: dict[str, object], grace: float = 10) -> RunningProgram:
    return programs.start(SUPERVISOR, json.dumps(children), grace)


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_each_line_carries_the_name_of_its_child(programs: Programs) -> None:
    supervisor = supervise(
        programs, {"name": "hsc", "source": OBEDIENT}, {"name": "frontend", "source": OBEDIENT}
    )

    assert supervisor.wait_for_line("hsc      | runs as process")
    assert supervisor.wait_for_line("frontend | runs as process")


def test_a_child_that_is_killed_is_started_again_after_longer_and_longer_delays(programs: Programs) -> None:
    supervisor = supervise(programs, {"name": "hsc", "source": OBEDIENT})

    for times in (1, 2, 3):
        os.kill(supervisor.number_in("runs as process", times), signal.SIGKILL)

    supervisor.wait_for_line("runs as process", times=4)
    delays = [line.split(" in ")[-1] for line in supervisor.lines_with("killed by SIGKILL")]
    assert delays == ["0.2 s", "0.4 s", "0.8 s"]


def test_a_child_starts_once_what_it_depends_on_serves(programs: Programs, port: int) -> None:
    address = f"127.0.0.1:{port}"
    supervisor = supervise(
        programs,
        {"name": "worker", "source": OBEDIENT, "depends_on": ["hsc"]},
        {"name": "hsc", "source": HEALTHY, "env": {"LISTEN": address}, "addresses": [address]},
    )

    supervisor.wait_for_line("runs as process")

    lines = supervisor.output.splitlines()
    assert lines.index(f"hsc    | [duly] ready on {address}") < lines.index("worker | [duly] started")


def test_ctrl_c_stops_all_children_in_the_reverse_order_of_their_start(programs: Programs) -> None:
    supervisor = supervise(
        programs,
        {"name": "hsc", "source": OBEDIENT},
        {"name": "worker", "source": OBEDIENT, "depends_on": ["hsc"]},
    )
    pids = [supervisor.number_in(f"{name} | runs as process") for name in ("hsc   ", "worker")]

    supervisor.send(signal.SIGINT)

    assert supervisor.wait() == 0
    assert [line.split()[0] for line in supervisor.lines_with("stops")] == ["worker", "hsc"]
    assert not any(map(is_alive, pids))


def test_a_stopping_supervisor_leaves_no_listener(programs: Programs, port: int) -> None:
    address = f"127.0.0.1:{port}"
    supervisor = supervise(
        programs,
        {"name": "hsc", "source": HEALTHY, "env": {"LISTEN": address}, "addresses": [address]},
    )
    supervisor.wait_for_line("ready on")

    supervisor.send(signal.SIGTERM)

    assert supervisor.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_child_that_ignores_sigterm_is_killed_with_its_group_after_the_grace(programs: Programs) -> None:
    supervisor = supervise(programs, {"name": "worker", "source": STUBBORN}, grace=0.3)
    child = supervisor.number_in("runs as process")
    helper = supervisor.number_in("helper")

    supervisor.send(signal.SIGINT)

    assert supervisor.wait() == 0
    assert supervisor.lines_with("still runs 0.3 s after SIGTERM; killing it")
    assert not is_alive(child)
    wait_until(lambda: not is_alive(helper))
    assert group_is_empty(child)


def test_a_second_ctrl_c_does_not_wait_for_the_grace(programs: Programs) -> None:
    supervisor = supervise(programs, {"name": "worker", "source": STUBBORN}, grace=1000)
    child = supervisor.number_in("runs as process")

    supervisor.send(signal.SIGINT)
    supervisor.send(signal.SIGTERM)

    assert supervisor.wait() == 0
    wait_until(lambda: group_is_empty(child))


@pytest.mark.long  # waits for the grace of a group
def test_what_a_crashed_child_leaves_in_its_group_is_gone_before_the_next_starts(programs: Programs) -> None:
    supervisor = supervise(programs, {"name": "worker", "source": STUBBORN})
    helper = supervisor.number_in("helper")

    os.kill(supervisor.number_in("runs as process"), signal.SIGKILL)

    supervisor.wait_for_line("runs as process", times=2)
    assert not is_alive(helper)


def test_a_child_with_bad_settings_stops_everything_with_its_message(programs: Programs) -> None:
    supervisor = supervise(
        programs, {"name": "hsc", "source": OBEDIENT}, {"name": "frontend", "source": BADLY_SET_UP}
    )

    assert supervisor.wait() == 78
    assert supervisor.lines_with(
        "gave up: frontend cannot work as it is set up: duly frontend: store.dsn is no"
    )
    assert len(supervisor.lines_with("runs as process")) <= 1
    assert all(not is_alive(int(line.split()[-1])) for line in supervisor.lines_with("runs as process"))


def test_killing_the_supervisor_ends_the_children(programs: Programs) -> None:
    supervisor = supervise(
        programs, {"name": "hsc", "source": OBEDIENT}, {"name": "frontend", "source": OBEDIENT}
    )
    pids = [supervisor.number_in(f"{name} | runs as process") for name in ("hsc     ", "frontend")]

    supervisor.send(signal.SIGKILL)

    wait_until(lambda: not any(map(is_alive, pids)), timedelta(seconds=5))


def test_a_supervisor_that_stops_while_a_child_waits_to_be_started_again_does_not_start_it(
    programs: Programs,
) -> None:
    supervisor = supervise(programs, {"name": "hsc", "source": "print('runs'); raise SystemExit(1)"})
    supervisor.wait_for_line("starting it again in 0.8 s")
    begun = len(supervisor.lines_with("| runs"))

    supervisor.send(signal.SIGINT)

    assert supervisor.wait() == 0
    assert len(supervisor.lines_with("| runs")) == begun


def test_a_restart_ends_the_child_gracefully_and_starts_it_at_once(programs: Programs) -> None:
    supervisor = supervise(
        programs, {"name": "worker", "source": OBEDIENT}, {"name": "hsc", "source": OBEDIENT}
    )
    before = supervisor.number_in("worker | runs as process")
    supervisor.number_in("hsc    | runs as process")

    supervisor.send(signal.SIGUSR1)

    supervisor.wait_for_line("runs as process", times=3)
    assert not is_alive(before)
    assert len(supervisor.lines_with("worker | stops")) == 1
    assert not supervisor.lines_with("starting it again")
    assert not supervisor.lines_with("hsc    | stops")


def test_a_child_that_reloads_waits_for_a_restart_when_it_is_badly_set_up(programs: Programs) -> None:
    supervisor = supervise(programs, {"name": "worker", "source": BADLY_SET_UP, "reloads": True})
    supervisor.wait_for_line("it is started again when the application changes")

    supervisor.send(signal.SIGUSR1)

    supervisor.wait_for_line("it is started again when the application changes", times=2)
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_a_restart_kills_a_child_that_ignores_sigterm_after_the_grace(programs: Programs) -> None:
    supervisor = supervise(programs, {"name": "worker", "source": STUBBORN}, grace=0.3)
    before = supervisor.number_in("runs as process")

    supervisor.send(signal.SIGUSR1)

    supervisor.wait_for_line("runs as process", times=2)
    assert not is_alive(before)
