"""One command under its supervisor: starts it, takes its output, ends it in time. Everything happens on the loop that started it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from duly.command_lambdas import supervisor
from duly.command_lambdas.outcomes import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from duly.command_lambdas.control_groups import ControlGroup
    from duly.command_lambdas.definition import CommandLambda
    from duly.command_lambdas.folder import RunFolder
    from duly.command_lambdas.request import Request

_READ_AT_ONCE = 64 * 1024
_LAST_WORDS_S = 2.0
"""For what was written before the end. All that could write is dead, so it is there."""
_AFTER_END_S = 10.0
_START_WITHIN_S = 60.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Supervised:
    """A command that runs."""

    def __init__(
        self, allowed: CommandLambda, files: Mapping[int, BinaryIO], tell: Callable[[int, bytes], None]
    ) -> None:
        """`files` get its stdout (1) and stderr (2); `tell` is called with each piece of them, as it comes."""
        self._allowed = allowed
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._files = files
        self._sizes = {1: 0, 2: 0}
        self._open: dict[int, int] = {}
        """Descriptors that are read, with the number of the stream; 0: reports."""
        self._limit = ""
        self._unread = b""
        self._begun = asyncio.Event()
        """Set when the command runs, or never will."""
        self._said: dict[str, Any] = {}
        self._quiet = asyncio.Event()
        self._ended = asyncio.Event()
        self._orders = -1
        self._unsent = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._group: ControlGroup | None = None

    def start(
        self,
        request: Request,
        folder: RunFolder,
        stdin: BinaryIO | None,
        group: ControlGroup | None = None,
    ) -> None:
        """Start it, in a control group if there is one. Raises OSError: this host cannot."""
        self._group = group
        if group is not None:
            group.limit(self._allowed.memory_limit, self._allowed.process_limit)
        orders, self._orders = os.pipe()
        reports, reports_in = os.pipe()
        try:
            fcntl.fcntl(self._orders, fcntl.F_SETPIPE_SZ, 1 << 16)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(orders), str(reports_in)],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(orders, reports_in, *(group.descriptors.values() if group is not None else ())),
                process_group=0,
                cwd="/",
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            )
        except BaseException:
            os.close(reports)
            os.close(self._orders)
            self._orders = -1
            raise
        finally:
            os.close(orders)
            os.close(reports_in)
        assert self._process.stdout is not None  # noqa: S101 (it is a pipe)
        assert self._process.stderr is not None  # noqa: S101 (it is a pipe)
        streams = {
            reports: 0,
            os.dup(self._process.stdout.fileno()): 1,
            os.dup(self._process.stderr.fileno()): 2,
        }
        self._process.stdout.close()
        self._process.stderr.close()
        for descriptor, stream in streams.items():
            os.set_blocking(descriptor, False)
            self._open[descriptor] = stream
            self._loop.add_reader(descriptor, self._read, descriptor)
        told = json.dumps(
            {
                "program": request.program,
                "argv": request.argv,
                "environment": {
                    "HOME": str(folder.temporary),  # not where inputs are: one may be called .wgetrc
                    "TMPDIR": str(folder.temporary),
                    **request.environment,
                },
                "work": str(folder.work),
                "folder": str(folder.path),
                "group": group.descriptors if group is not None else None,
                "memory_limit": self._allowed.memory_limit,
                "process_limit": self._allowed.process_limit,
                "folder_limit": self._allowed.folder_limit,
            }
        ).encode()
        os.set_blocking(self._orders, False)
        self._send(len(told).to_bytes(supervisor.LENGTH_BYTES, "big") + told)

    async def end(self) -> Ended:
        """Wait for its end; end it when its time is over. If this is cancelled, the command still runs."""
        with suppress(TimeoutError):  # a supervisor that hangs has no command that could run too long
            async with asyncio.timeout(_START_WITHIN_S):
                await self._begun.wait()
        try:
            async with asyncio.timeout(self._allowed.max_runtime.total_seconds()):
                await self._ended.wait()
        except TimeoutError:
            self._limit = self._limit or "max_runtime"
            await self.stop(self._allowed.stop_grace)
        return await self._last()

    async def stop(self, grace: timedelta) -> None:
        """Let the command end by itself, after SIGTERM; then kill all of it. Returns when nothing of it is left."""
        self._send(b"T")
        ending = asyncio.create_task(self._ended.wait())
        try:
            # not asyncio.timeout: before Python 3.11.4 it raises CancelledError in a task that was cancelled before
            await asyncio.wait((ending,), timeout=grace.total_seconds())
        except asyncio.CancelledError:
            ending.cancel()
            raise
        finally:
            self.kill()
        await ending

    def kill(self) -> None:
        """Kill all of it."""
        self._send(b"K")

    async def _last(self) -> Ended:
        if not {"ended", "not_started"} & self._said.keys():
            self._kill_group()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._quiet.wait()
        said = self._said
        if "not_started" in said:
            return Ended(not_started=int(said["not_started"]))
        if "ended" not in said:
            return Ended(status=-signal.SIGKILL, limit=self._limit or "supervisor")
        limit = self._limit or said["limit"]
        return Ended(int(said["ended"]), limit, 0, float(said["seconds"]), float(said["cpu_seconds"]))

    def _kill_group(self) -> None:
        """Kill what a dead supervisor left. Without a control group, what left its process group ends with this process, by containment."""
        if self._group is not None:
            self._group.kill()
        if (command := int(self._said.get("started", 0))) > 1:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(command, signal.SIGKILL)

    async def close(self) -> None:
        """Kill what is left, and forget it."""
        for descriptor in tuple(self._open):
            self._close(descriptor)
        if self._orders >= 0:
            os.close(self._orders)  # the supervisor sees it, and kills what it has
            self._orders = -1
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _AFTER_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)

    def _send(self, orders: bytes) -> None:
        """Write orders; what the pipe has no room for is written later."""
        if self._orders < 0:
            return
        try:
            left = orders[os.write(self._orders, orders) :]
        except BlockingIOError:
            left = orders
        except OSError:  # it is dead
            return
        if left:
            self._unsent = left
            self._loop.add_writer(self._orders, self._send_rest)

    def _send_rest(self) -> None:
        self._loop.remove_writer(self._orders)
        unsent, self._unsent = self._unsent, b""
        self._send(unsent)

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        stream = self._open[descriptor]
        if not data:
            self._close(descriptor)
        elif stream:
            self._take(stream, data)
        else:
            self._listen(data)

    def _close(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        stream = self._open.pop(descriptor)
        if stream == 0:
            self._begun.set()
            self._ended.set()
        if not {1, 2} & set(self._open.values()):
            self._quiet.set()

    def _take(self, stream: int, data: bytes) -> None:
        """Keep output, as far as there is room."""
        room = self._allowed.output_limit - self._sizes[stream]
        if len(data) > room:
            data = data[:room]
            self._over("output")
        try:
            self._files[stream].write(data)
        except OSError as error:
            self._over("disk" if error.errno in _FULL else "output")
            return
        self._sizes[stream] += len(data)
        if data:
            self._tell(stream, data)

    def _over(self, limit: str) -> None:
        if not self._limit:
            self._limit = limit
            self.kill()

    def _listen(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            self._said |= said
            self._begun.set()
            if "ended" in said or "not_started" in said:
                self._ended.set()
