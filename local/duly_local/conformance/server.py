# ruff: noqa: N802 (gRPC names a servicer's methods)
"""The Duly of the suite, behind a real gRPC server: it answers, refuses, delays, and loses answers, as a duty says."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import grpc

from duly_core.rpc.call_streams import CallStreams
from duly_local.conformance.tasks import Tasks
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    hsc_pb2,
    hsc_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)

Fault = Literal["refuse", "lose"]
"""`refuse`: nothing is done. `lose`: it is done. The caller gets UNAVAILABLE, and cannot tell them apart."""

_WORK_METHODS = {"claim_work": "ClaimWork", "set_results": "SetResults"}
_LONGEST_CALL = timedelta(seconds=75)
_LOOK_AGAIN = 0.02


@dataclass
class Call:
    """A call that came in."""

    at: float
    method: str
    request: Any
    answered_at: float = 0


@dataclass
class Faults:
    """What goes wrong."""

    next: dict[str, deque[Fault]] = field(default_factory=dict)
    """By method: of its next calls."""
    away: set[str] = field(default_factory=set)
    """Methods of which every call is refused."""
    delay: dict[str, float] = field(default_factory=dict)
    """By method: seconds that its answers take on their way back."""


_Hsc: Any = hsc_pb2_grpc.HscServiceServicer
_Registry: Any = registry_pb2_grpc.RegistryServiceServicer
_Fleet: Any = fleet_pb2_grpc.FleetServiceServicer
"""Any: what workers do not call is left UNIMPLEMENTED."""


class ScriptedDuly(_Hsc, _Registry, _Fleet):
    """Frontend and HSC in one, as far as workers know them."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.faults = Faults()
        self.calls: list[Call] = []
        self._server = grpc.aio.server()

    async def start(self, address: str) -> str:
        """Serve; the address."""
        hsc_pb2_grpc.add_HscServiceServicer_to_server(self, self._server)
        registry_pb2_grpc.add_RegistryServiceServicer_to_server(self, self._server)
        fleet_pb2_grpc.add_FleetServiceServicer_to_server(self, self._server)
        host, _, _ = address.rpartition(":")
        port = self._server.add_insecure_port(address)
        await self._server.start()
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Serve no more."""
        await self._server.stop(None)

    def seen(self, method: str, since: float = 0) -> list[Call]:
        """Return the calls of a method that came since then."""
        return [call for call in self.calls if call.method == method and call.at >= since]

    # ---- the RPCs --------------------------------------------------------------------------------------

    async def _answer(self, method: str, request: Any, context: Any, work: Callable[[], Any]) -> Any:
        call = Call(time.monotonic(), method, request)
        self.calls.append(call)
        faults = self.faults.next.get(method)
        fault = faults.popleft() if faults else "refuse" if method in self.faults.away else None
        response = None if fault == "refuse" else work()
        if delay := self.faults.delay.get(method):
            await asyncio.sleep(delay)
        if fault:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the suite lost the answer")
        call.answered_at = time.monotonic()
        return response

    async def RegisterLambdas(self, request: Any, context: Any) -> Any:
        def register() -> Any:
            results = [registry_pb2.RegisterLambdasResult(in_force=True) for _ in request.lambdas]
            return registry_pb2.RegisterLambdasResponse(results=results)

        return await self._answer("RegisterLambdas", request, context, register)

    async def ReportHost(self, request: Any, context: Any) -> Any:
        return await self._answer("ReportHost", request, context, fleet_pb2.ReportHostResponse)

    async def Work(self, _requests: Any, context: Any) -> None:
        await CallStreams(self, _WORK_METHODS, hsc_pb2.WorkResponse, _LONGEST_CALL, None).serve(context)

    async def ClaimWork(self, request: Any, context: Any) -> Any:
        came = time.monotonic()
        claimed: list[hsc_pb2.ClaimedTask] = self.tasks.again(request.token_prefix)
        if not claimed:
            lost = [task for prefix in request.lost_prefixes for task in self.tasks.under(prefix)]
            if lost:
                claimed = self.tasks.claim(lost, request.token_prefix)
        begun = Call(came, "ClaimWork begun", request)
        self.calls.append(begun)
        if not claimed and not request.lost_prefixes and "ClaimWork" not in self.faults.away:
            until = came + min(request.timeout.ToTimedelta().total_seconds(), 60)
            while not (due := self.tasks.due(getattr(request, "lambdas"), request.max_tasks)):  # noqa: B009
                left = until - time.monotonic()
                if left <= 0 or "ClaimWork" in self.faults.away:
                    break
                await asyncio.sleep(min(left, _LOOK_AGAIN))
            if due and (self.faults.next.get("ClaimWork") or [""])[0] != "refuse":
                claimed = self.tasks.claim(due, request.token_prefix)
        waited = time.monotonic() - came

        def respond() -> Any:
            return hsc_pb2.ClaimWorkResponse(
                tasks=claimed, terms=self._terms(), waited=to_duration(timedelta(seconds=waited))
            )

        return await self._answer("ClaimWork", request, context, respond)

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        def beat() -> Any:
            verdicts = [self.tasks.beat(item) for item in request.items]
            to_kill = [
                item.claim.task_id
                for item in request.items
                if (task := self.tasks.all.get(item.claim.task_id)) and task.kill
            ]
            return hsc_pb2.HeartbeatResponse(verdicts=verdicts, terms=self._terms(), kill_task_ids=to_kill)

        return await self._answer("Heartbeat", request, context, beat)

    async def SetResults(self, request: Any, context: Any) -> Any:
        def write() -> Any:
            return hsc_pb2.SetResultsResponse(verdicts=[self.tasks.finish(each) for each in request.results])

        return await self._answer("SetResults", request, context, write)

    async def Release(self, request: Any, context: Any) -> Any:
        def release() -> Any:
            verdicts = [self.tasks.release(claim) for claim in request.claims]
            for prefix in request.token_prefixes:
                self.tasks.release_under(prefix)
            return hsc_pb2.ReleaseResponse(verdicts=verdicts)

        return await self._answer("Release", request, context, release)

    def _terms(self) -> hsc_pb2.LeaseTerms:
        lease = to_duration(self.tasks.lease)
        return hsc_pb2.LeaseTerms(claim_timeout=lease, heartbeat_timeout=lease)
