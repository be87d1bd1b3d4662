"""Nothing that comes over the wire or out of a queue makes a service fail, hang or grow."""

import os
import subprocess
import sys
import time

import pytest

from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.rpc.requests.decode_errors import explain
from duly_wire.v1 import frontend_pb2
from tests.fixtures.forked_process import ROOT
from tests.fixtures.hsc_cells import two_databases
from tests.fuzz.campaign import fuzz
from tests.fuzz.cells import OF_BOTH, install_cells
from tests.fuzz.hostile_cells import hostile
from tests.fuzz.installation import install

SECONDS = float(os.environ.get("DULY_FUZZ_SECONDS", "15"))
BUSY = 5
"""Times the limit of a hang: the tests share their machine."""


SOME_ROLES = [Grant("fuzz", role, "fuzz.one") for role in (Role.CLIENT, Role.OWNER, Role.HOST)]


@pytest.mark.long  # as long as it is told to
@pytest.mark.timeout(max(90, SECONDS + 60))
@pytest.mark.parametrize("grants", [[], SOME_ROLES], ids=["everything", "some roles"])
async def test_whatever_is_sent_is_answered_by_a_status_that_says_what_is_wrong(dsn, grants):
    async with install(dsn, grants) as installation:
        tallies = await fuzz(installation, SECONDS, seed=1, patience=BUSY)

    assert all(tally.executions for tally in tallies.values())
    # deep code was reached, and shallow checks were, too
    for name in (
        "Schedule",
        "ClaimTask",
        "ClaimWork",
        "Heartbeat",
        "SetResults",
        "Release",
        "AttachExecutor",
        "GetMetrics",
        "StreamIsActive",
    ):
        assert tallies[f"{name}: fields"].answers.keys() & {"OK", "INVALID_ARGUMENT"}, name


@pytest.mark.long  # as long as it is told to
@pytest.mark.timeout(max(90, SECONDS + 60))
@pytest.mark.parametrize("grants", [[], OF_BOTH], ids=["everything", "some roles"])
async def test_whatever_names_another_cell_is_answered_and_changes_no_row_of_a_cell_that_it_may_not_change(
    postgres_server, grants
):
    with two_databases(postgres_server) as dsns:
        async with install_cells(dsns, grants) as installation:
            tallies = await fuzz(
                installation, SECONDS / 2, seed=2, patience=BUSY, often=hostile(installation)
            )

    for name in hostile(installation):
        assert "OK" in tallies[name].answers, name


@pytest.mark.long  # starts a Postgres of its own, and tries each target once
@pytest.mark.timeout(200)
def test_the_command_fuzzes_each_target_on_a_postgres_of_its_own():
    command = [sys.executable, "-m", "tests.fuzz", "--seconds=1", "--seed=3", f"--patience={BUSY}"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert "StreamIsActive: bytes" in done.stdout


@pytest.mark.parametrize("kind", [frontend_pb2.ScheduleRequest, frontend_pb2.GetTaskRequest])
def test_a_number_without_end_is_explained_at_once(kind):
    data = b"\x0a" + b"\xff" * 4_000_000
    started = time.monotonic()

    field, _ = explain(data, kind.DESCRIPTOR)

    assert field == "request"
    assert time.monotonic() - started < BUSY
