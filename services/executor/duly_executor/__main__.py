"""Wiring of the Executor process: its command line, settings, and the worker."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import os

from duly_core.config.timing import Timing
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings
from duly_core.rpc.settings import RpcSettings
from duly_executor.executor import Executor
from duly_executor.settings import ExecutorSettings


def build(application: str, controller_address: str, **overrides: object) -> Serve:
    """Read the settings; `overrides` are those of [executor]."""
    settings = ExecutorSettings.load(**overrides)
    timing = Timing.load()
    rpc = RpcSettings.load()
    telemetry = TelemetrySettings.load()
    # callback processes read no settings; they write as this process does
    os.environ["DULY_TELEMETRY_LOG_FORMAT"] = telemetry.log_format

    async def serve(stop: asyncio.Event) -> None:
        await Executor(application, controller_address, settings, timing, rpc, telemetry).run(stop)

    return serve


def main(application: str, controller_address: str, **overrides: object) -> None:
    """Run until told to stop."""
    run_service("executor", lambda: build(application, controller_address, **overrides))


def _from_command_line() -> None:
    parser = argparse.ArgumentParser(
        prog="duly executor", description="Run the callbacks of one application."
    )
    parser.add_argument("application", help="MODULE:APP")
    parser.add_argument("--controller", required=True, help="the Controller's address: unix:PATH")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--debug-port", type=int)
    parser.add_argument("--domains")
    parser.add_argument("--labels")
    arguments = parser.parse_args()
    main(
        arguments.application,
        arguments.controller,
        processes=arguments.processes,
        slots=arguments.slots,
        debug_port=arguments.debug_port,
        domains=arguments.domains,
        labels=arguments.labels,
    )


if __name__ == "__main__":
    _from_command_line()
