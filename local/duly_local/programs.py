"""What the services stand on: Postgres and the SQS look-alike. Not ours, but kept running like ours."""

import asyncio
from datetime import timedelta
from typing import Protocol

from duly_core.errors import DulyError
from duly_local.merged_output import MergedOutput

_LOOK_EVERY = timedelta(milliseconds=500)
_AFTER_A_FAILURE = timedelta(seconds=5)


class Program(Protocol):
    """A server that runs on the port it first got."""

    port: int | None

    @property
    def pid(self) -> int | None:
        """None: it does not run."""

    def start(self) -> None:
        """Start it for the first time, and return when it is ready."""

    def launch(self) -> None:
        """Start its process again."""

    def wait_until_ready(self) -> None:
        """Wait until it serves."""

    def stop(self) -> None:
        """End it."""


async def keep_running(name: str, program: Program, output: MergedOutput) -> None:
    """Start the program again whenever it has ended, until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_EVERY.total_seconds())
        if program.pid is not None:
            continue
        output.write(name, "[duly] ended; starting it again")
        try:
            program.launch()  # here, not in a thread: the kernel ties its life to the thread that starts it
            await asyncio.to_thread(program.wait_until_ready)
        except (DulyError, OSError) as error:
            for line in str(error).splitlines():
                output.write(name, f"[duly] {line}")
            await asyncio.sleep(_AFTER_A_FAILURE.total_seconds())
        else:
            output.write(name, f"[duly] ready on port {program.port}")
