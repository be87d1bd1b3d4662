"""A command that sets the number of workers of something: the driver for whatever Duly has none for."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import CommandSpec, fill
from duly_core.pools.rules import Pool

_LONGEST_SAID = 500
_MOST_READ = 65_536


class CommandDriver:
    """Runs a program without a shell. Exit code 0: it did what it was told."""

    def __init__(self, spec: CommandSpec) -> None:
        self._spec = spec

    @property
    def ends_workers(self) -> bool:
        """Unless there is a command that ends one worker."""
        return not self._spec.drain

    async def ensure(self, order: Order) -> None:
        """Run the command with the number of workers."""
        if self.ends_workers or order.start:
            await _run(self._spec.command, order.pool, {"workers": str(order.desired)})

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:
        """Run the command that ends a worker, for each."""
        if self._spec.drain:
            for host_id in host_ids:
                await _run(self._spec.drain, pool, {"worker": host_id})

    async def close(self) -> None:
        """Nothing is its own."""


async def _run(words: tuple[str, ...], pool: Pool, values: Mapping[str, str]) -> None:
    try:
        command = fill(words, {**pool.driver_settings, "pool": pool.name, **values})
    except ValueError as error:
        raise DriverError(str(error)) from None
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
        said = await _end_of(process)
        code = await process.wait()
    except OSError as error:
        raise DriverError(f"{command[0]} cannot be started: {error.strerror or error}") from error
    finally:
        await _kill(starting)
    if code:
        raise DriverError(f"{command[0]} ended with code {code}: {said or 'it said nothing'}")


async def _kill(starting: "asyncio.Future[Process]") -> None:
    """Kill what still runs: it took too long, or this autoscaler does not lead any more. It may be about to start."""
    with suppress(OSError):
        process = await starting
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _end_of(process: Process) -> str:
    """Return the last line of what it says on stderr."""
    assert process.stderr is not None  # noqa: S101 (a pipe, as above)
    tail = b""
    while part := await process.stderr.read(_MOST_READ):
        tail = (tail + part)[-_LONGEST_SAID:]
    lines = tail.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
