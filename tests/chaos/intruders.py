"""Callers that try what they may not, all the time: a foreign principal, nobody, and everybody in another's role.

Every RPC is tried, about lambdas and tasks of the run. No call may be answered as if it was allowed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

import grpc

from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_wire.ids import new_task_id
from tests.chaos.access import AUDITOR, CLIENT, HOST, STRANGER
from tests.chaos.kinds import KINDS
from tests.chaos.loops import end_loop
from tests.chaos.random_graphs import time_tables
from tests.chaos.stack import System
from tests.fixtures.role_calls import REQUESTS, Thing, make

_EVERY_S = 0.1
NOBODY = "nobody"
_HSC = "/duly.v1.HscService/"

# What callers of every role may call: it tells them of themselves, or of what is theirs.
_OF_ONESELF = frozenset({"/duly.v1.AccessService/GetAccess"})
# A host of other lambdas may call these: the token of a claim is what counts there, and these tokens are invented.
_BY_TOKEN = frozenset({f"{_HSC}Heartbeat", f"{_HSC}SetResults", f"{_HSC}Release"})
_OPERATORS = frozenset(
    f"/duly.v1.{path}"
    for path in (
        *("SettingsService/SetSettings", "SettingsService/ResetSettings"),
        *("LimitService/PutResource", "LimitService/DeleteResource"),
        *("AccessService/AddGrants", "AccessService/RemoveGrants", "AccessService/CreateToken"),
        *("AccessService/RevokeTokens", "AccessService/ListTokens", "AccessService/ListGrants"),
        # an owner may pause what it owns, as the client and the host of the run do
        *("GateService/DeleteGates", "GateService/PutBreaker"),
        *("GateService/DeleteBreakers", "AccessService/ListAuditEvents", "FleetService/ListServices"),
    )
)
_WORK = frozenset(path for path in REQUESTS if path.startswith((_HSC, "/duly.v1.FleetService/Report")))
_CHANGES = frozenset(
    path
    for path in REQUESTS
    if path.rpartition("/")[2].startswith(
        (
            *("Schedule", "Cancel", "Update", "Redrive", "Purge", "Put", "Delete", "Register", "Restore"),
            *("Unblock", "Set", "Reset", "Pause", "Resume", "Backfill", "Add", "Remove", "Create", "Revoke"),
        )
    )
    or path in _WORK
)
TRIED: Mapping[str, frozenset[str]] = {
    NOBODY: frozenset(REQUESTS),
    STRANGER: frozenset(REQUESTS) - _OF_ONESELF - _BY_TOKEN,
    CLIENT: _WORK | _OPERATORS,
    HOST: _OPERATORS,
    AUDITOR: _CHANGES,
}
"""By principal: the RPCs that it may not call about what belongs to the run."""
_LISTS = ("List", "GetBacklog", "GetTimeTables", "GetSession")
"""An answer to these may come, and must name nothing of the run."""
_UNKNOWN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"})
_OURS = "chaos"
_SECRET = {"ListResources": f"lambda:{_OURS}"}
"""What such an answer must not name, if that is less: everybody who reads may see resources, but not quotas of lambdas."""


class Intruders:
    """Start, and stop; they do nothing where nobody is asked who they are."""

    def __init__(self, system: System, some_task: Callable[[], tuple[str, str]], random: Random) -> None:
        """Make them; `some_task` gives a task that somebody scheduled, and a graph."""
        self._system = system
        self._some_task = some_task
        self._random = random
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._task: asyncio.Task[None] | None = None
        self.tried: Counter[str] = Counter()
        """Calls that were answered, by principal."""
        self.problems: list[str] = []

    def start(self) -> None:
        if self._system.plan.auth:
            self._task = asyncio.create_task(self._try_for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self.problems += await end_loop(self._task)
        for channel in self._channels.values():
            await channel.close()

    async def _try_for_ever(self) -> None:
        calls = [(principal, path) for principal, paths in TRIED.items() for path in sorted(paths)]
        while True:
            self._random.shuffle(calls)
            for principal, path in calls:
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(5):
                        await self._try(principal, path)
                await asyncio.sleep(_EVERY_S)

    async def _try(self, principal: str, path: str) -> None:
        task_id, graph_id = self._some_task()
        thing = Thing(
            name=self._random.choice(KINDS).lambda_name,
            task_id=task_id or str(new_task_id()),
            session="chaos-1",
            graph_id=graph_id or str(new_task_id()),
            table=time_tables()[0].table.name,
            definition="chaos",
        )
        token = self._system.tokens.token(principal)
        metadata = [("authorization", f"Bearer {token}")] if token else []
        answer = await make(self._channel(path), path, thing, metadata)
        if answer.outcome in _UNKNOWN:
            return
        self.tried[principal] += 1
        method = path.rpartition("/")[2]
        if answer.outcome != "OK":
            return
        secret = _SECRET.get(method, _OURS)
        if principal != NOBODY and method.startswith(_LISTS) and secret not in answer.text:
            return
        self.problems.append(f"C16.role {path} was answered to {principal}: {answer.text[:200]!r}")

    def _channel(self, path: str) -> grpc.aio.Channel:
        """Return one to a service that has this RPC, past all proxies."""
        topology = self._system.topology
        names = topology.hsc_names() if path.startswith(_HSC) else topology.frontend_names()
        address = self._system.addresses[self._random.choice(names)]
        if address not in self._channels:
            self._channels[address] = open_channel(address, RpcSettings())
        return self._channels[address]
