"""A real Controller and a real Executor take the log levels that operators set, while they run."""

import asyncio
from datetime import timedelta

import pytest

from duly_controller.__main__ import build
from duly_core.process.log_levels import log_levels
from duly_wire.v1 import fleet_pb2
from tests.fixtures.host import APP, JOURNALS
from tests.fixtures.services import serve_frontend


@pytest.fixture(autouse=True)
def levels():
    """Give the process its level back."""
    before = log_levels._default, dict(log_levels._levels)
    yield log_levels
    log_levels._default, log_levels._levels = before


@pytest.mark.long  # two rounds of reports of a host
async def test_an_executor_that_runs_takes_the_level_that_operators_set_and_reset(
    store, hsc, tmp_path, monkeypatch, commands
):
    values = {}
    environment = {
        "DULY_TIMING_PROFILE": "embedded",
        "DULY_QUEUE_BACKEND": "store",
        "DULY_EXECUTOR_JOURNAL_FOLDER": str(tmp_path / JOURNALS),
        "DULY_EXECUTOR_HSC_ADDRESS": hsc.address,
        "DULY_TELEMETRY_LOG_FORMAT": "json",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    address = f"unix:{tmp_path}/host/controller.sock"
    stop = asyncio.Event()
    async with serve_frontend(store, host_settings=lambda: fleet_pb2.HostSettings(values=values)) as frontend:
        serve = build(
            [],
            listen=address,
            hsc_address=hsc.address,
            frontend_address=frontend.address,
            report_interval=timedelta(seconds=1),
        )
        serving = asyncio.create_task(serve(stop))
        try:
            executor = commands.start("duly_executor", APP, "--controller", address, **environment)
            await executor.says("attached to the controller")

            values["executor.log_level"] = "debug"
            await executor.says('"log_level": "debug"')
            values.clear()
            await executor.says('"log_level": "info"')
        finally:
            for command in commands.started:
                command.clean_up()
            stop.set()
            await serving
