"""The runner's side of a fork server: asks it for processes, and hears when they end."""

import asyncio
import json
import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.fork_server import LONGEST, start_fork_server


@dataclass(frozen=True, slots=True)
class Forked:
    """A process that was forked for us; it is the fork server's child."""

    pid: int
    ended: "asyncio.Future[int]"
    """Its exit code, negative for a signal."""


class ForkServer:
    """Made before the process has threads; used from one event loop."""

    def __init__(self) -> None:
        self.pid, self._link = start_fork_server()
        self._asked: deque[asyncio.Future[Forked]] = deque()
        self._running: dict[int, asyncio.Future[int]] = {}
        self._listening = False

    async def fork(
        self, role: str, arguments: Sequence[str], environment: Mapping[str, str], output: int
    ) -> Forked:
        """Have a process forked that becomes `role` and writes to the descriptor `output`."""
        loop = asyncio.get_running_loop()
        if not self._listening:
            self._listening = True
            loop.add_reader(self._link, self._hear)
        asked: asyncio.Future[Forked] = loop.create_future()
        self._asked.append(asked)
        request = {"role": role, "arguments": list(arguments), "environment": dict(environment)}
        socket.send_fds(self._link, [json.dumps(request).encode()], [output])
        return await asked

    def _hear(self) -> None:
        """Answers come in the order of the requests, and the end of a process after its start."""
        event = json.loads(self._link.recv(LONGEST) or b"{}")
        loop = asyncio.get_running_loop()
        if not event:  # it is gone, and all that it forked with it
            loop.remove_reader(self._link)
            for ended in self._running.values():
                ended.cancel()
            for asked in self._asked:
                asked.cancel()
        elif "forked" in event:
            pid = event["forked"]
            ended = self._running[pid] = loop.create_future()
            self._asked.popleft().set_result(Forked(pid, ended))
        else:
            self._running.pop(event["ended"]).set_result(event["code"])

    def close(self) -> None:
        """End it, and whatever of it is left."""
        if self._listening:
            asyncio.get_running_loop().remove_reader(self._link)
        self._link.close()
        os.waitpid(self.pid, 0)
