"""One supervised process: started, watched until it is ready, started again when it ends, stopped for good."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta
from signal import SIGKILL, SIGTERM

from duly_core.process.parent import PARENT_PID
from duly_core.process.ready_pipe import READY_PIPE
from duly_local.child_spec import ChildGaveUpError, ChildSpec, SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.processes import clear_group, how_it_ended, signal_group

_REMEMBERED_LINES = 20
_LAST_WORDS = timedelta(seconds=1)


class Child:
    """Keeps one process running until `stop`."""

    def __init__(self, spec: ChildSpec, output: MergedOutput, timing: SupervisionTiming) -> None:
        self.spec = spec
        self.ready = asyncio.Event()
        self.pid: int | None = None
        """Also the id of its process group; None: it does not run."""
        self._output = output
        self._timing = timing
        self._last_lines: deque[bytes] = deque(maxlen=_REMEMBERED_LINES)
        self._ready_at: float | None = None
        self._stopping = asyncio.Event()
        self._restarting = asyncio.Event()
        self._gone = asyncio.Event()
        self._gone.set()

    async def keep_running(self) -> None:
        """Run the command, again and again, until `stop`.

        Raises:
            ChildGaveUpError: it exited with EX_CONFIG, or cannot be started; quotes the last it said.
        """
        delay = self._timing.first_delay
        while not self._stopping.is_set():
            code, was_ready_for = await self._run_once()
            if self._stopping.is_set():
                return
            if code == os.EX_CONFIG and self.spec.reloads and not self._restarting.is_set():
                self._say("cannot work as it is set up; it is started again when the application changes")
                await self._rest(None)
            if self._restarting.is_set():
                self._restarting.clear()
                delay = self._timing.first_delay
                continue
            if code == os.EX_CONFIG:
                raise ChildGaveUpError(f"{self.spec.name} cannot work as it is set up: {self.last_line}")
            if was_ready_for > self._timing.healthy_after:
                delay = self._timing.first_delay
            self._say(f"{how_it_ended(code)}; starting it again in {delay.total_seconds():g} s")
            await self._rest(delay)
            self._restarting.clear()
            delay = min(2 * delay, self._timing.longest_delay)

    async def restart(self) -> None:
        """End it as `stop` does, and have it started again at once."""
        self._restarting.set()
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, SIGTERM)
        if not await _happens(self._gone, self._timing.grace) and self.pid is not None:
            self._say(f"still runs {self._timing.grace.total_seconds():g} s after SIGTERM; killing it")
            signal_group(self.pid, SIGKILL)

    async def _rest(self, longest: timedelta | None) -> None:
        """Wait until it is to be stopped or restarted, at most so long."""
        either = [asyncio.ensure_future(event.wait()) for event in (self._stopping, self._restarting)]
        timeout = longest.total_seconds() if longest is not None else None
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for each in either:
            each.cancel()

    async def stop(self) -> None:
        """End it for good: SIGTERM, then after the grace SIGKILL to its process group."""
        self._stopping.set()
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it ended, and we have yet to hear of it
                os.kill(self.pid, SIGTERM)
        if not await _happens(self._gone, self._timing.grace):
            self._say(f"still runs {self._timing.grace.total_seconds():g} s after SIGTERM; killing it")
            self.kill()
            await self._gone.wait()

    def kill(self) -> None:
        """End it for good, at once."""
        self._stopping.set()
        if self.pid is not None:
            signal_group(self.pid, SIGKILL)

    @property
    def last_line(self) -> str:
        """The last thing it said that is not empty."""
        said = (line.decode(errors="replace").strip() for line in reversed(self._last_lines))
        return next(filter(None, said), "(it said nothing)")

    async def _run_once(self) -> tuple[int, timedelta]:
        """One life of the process: its exit code, and how long it was ready."""
        self._gone.clear()
        self._last_lines.clear()
        try:
            process, output, ready = await self._spawn()
            self.pid = process.pid
            if self._stopping.is_set():  # `stop` came while it started
                self.kill()
            forwarding = asyncio.create_task(self._forward(output))
            watching = asyncio.create_task(self._watch_readiness(ready))
            code = await process.wait()
            was_ready_for = time.monotonic() - self._ready_at if self._ready_at else 0
            self.pid = self._ready_at = None
            self.ready.clear()
            watching.cancel()
            await clear_group(process.pid, self.spec.cleanup_grace)
            # A descendant in a group of its own may hold the pipe open.
            await asyncio.wait({forwarding}, timeout=_LAST_WORDS.total_seconds())
            forwarding.cancel()
        finally:
            self._gone.set()
        return code, timedelta(seconds=was_ready_for)

    async def _spawn(self) -> tuple[asyncio.subprocess.Process, int, int]:
        """Start the process; return it, and the reading ends of its output and of its ready pipe."""
        # Not asyncio's PIPE: with it, wait() may last until the last descendant has closed the pipe.
        output, writing_end = os.pipe()
        ready, tells_ready = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                env={
                    **os.environ,
                    **self.spec.env,
                    PARENT_PID: str(os.getpid()),
                    READY_PIPE: str(tells_ready),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing_end,
                stderr=writing_end,
                pass_fds=(*self.spec.inherits, tells_ready),
                start_new_session=True,
            )
        except OSError as error:
            os.close(output)
            os.close(ready)
            raise ChildGaveUpError(f"{self.spec.name} cannot be started: {error}") from error
        finally:
            os.close(writing_end)
            os.close(tells_ready)
        return process, output, ready

    async def _forward(self, output: int) -> None:
        async with _reader_of(output) as reader:
            await self._output.forward(self.spec.name, reader, self._last_lines)

    async def _watch_readiness(self, ready: int) -> None:
        addresses = self.spec.addresses
        missing = set(addresses)
        async with _reader_of(ready) as reader:
            while missing:
                try:
                    async with asyncio.timeout(self._timing.ready_within.total_seconds()):
                        told = await reader.readline()
                except TimeoutError:
                    waited = self._timing.ready_within.total_seconds()
                    late = ", ".join(sorted(missing))
                    self._say(f"not ready on {late} after {waited:g} s; still waiting for it")
                    continue
                if not told:  # it has ended
                    return
                missing.discard(told.decode().strip())
        self._ready_at = time.monotonic()
        self.ready.set()
        self._say(f"ready on {', '.join(addresses)}" if addresses else "started")

    def _say(self, line: str) -> None:
        self._output.write(self.spec.name, f"[duly] {line}")


@contextlib.asynccontextmanager
async def _reader_of(reading_end: int) -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading_end, "rb", buffering=0)
    )
    try:
        yield reader
    finally:
        transport.close()


async def _happens(event: asyncio.Event, within: timedelta) -> bool:
    """Wait for the event; False: it did not happen in time."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            await event.wait()
    except TimeoutError:
        return False
    return True
