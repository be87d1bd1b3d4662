"""Calls to the Frontend, each with the token of the person who looks at the page."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from duly_wire import missing_cells
from duly_wire.v1 import (
    access_pb2_grpc,
    attachments_pb2_grpc,
    event_addresses_pb2_grpc,
    events_pb2_grpc,
    explain_pb2_grpc,
    fleet_pb2_grpc,
    frontend_pb2_grpc,
    gates_pb2_grpc,
    graphs_pb2_grpc,
    inspection_pb2_grpc,
    limits_pb2_grpc,
    objectives_pb2_grpc,
    output_pb2_grpc,
    pools_pb2_grpc,
    problems_pb2_grpc,
    registry_pb2_grpc,
    sessions_pb2_grpc,
    settings_pb2_grpc,
    time_tables_pb2_grpc,
    watches_pb2_grpc,
)

if TYPE_CHECKING:
    from duly_wire.v1.access_pb2_grpc import AccessServiceAsyncStub
    from duly_wire.v1.attachments_pb2_grpc import AttachmentServiceAsyncStub
    from duly_wire.v1.event_addresses_pb2_grpc import EventAddressServiceAsyncStub
    from duly_wire.v1.events_pb2_grpc import EventServiceAsyncStub
    from duly_wire.v1.explain_pb2_grpc import ExplainServiceAsyncStub
    from duly_wire.v1.fleet_pb2_grpc import FleetServiceAsyncStub
    from duly_wire.v1.frontend_pb2_grpc import FrontendServiceAsyncStub
    from duly_wire.v1.gates_pb2_grpc import GateServiceAsyncStub
    from duly_wire.v1.graphs_pb2_grpc import GraphServiceAsyncStub
    from duly_wire.v1.inspection_pb2_grpc import InspectionServiceAsyncStub
    from duly_wire.v1.limits_pb2_grpc import LimitServiceAsyncStub
    from duly_wire.v1.objectives_pb2_grpc import ObjectiveServiceAsyncStub
    from duly_wire.v1.output_pb2_grpc import OutputServiceAsyncStub
    from duly_wire.v1.pools_pb2_grpc import PoolServiceAsyncStub
    from duly_wire.v1.problems_pb2_grpc import ProblemServiceAsyncStub
    from duly_wire.v1.registry_pb2_grpc import RegistryServiceAsyncStub
    from duly_wire.v1.sessions_pb2_grpc import SessionServiceAsyncStub
    from duly_wire.v1.settings_pb2_grpc import SettingsServiceAsyncStub
    from duly_wire.v1.time_tables_pb2_grpc import TimeTableServiceAsyncStub
    from duly_wire.v1.watches_pb2_grpc import WatchServiceAsyncStub

Answer = TypeVar("Answer")


class FrontendStubs:
    """The services of the Frontend, over one channel that shows no token of its own."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.access = cast("AccessServiceAsyncStub", access_pb2_grpc.AccessServiceStub(channel))
        self.attachments = cast(
            "AttachmentServiceAsyncStub", attachments_pb2_grpc.AttachmentServiceStub(channel)
        )
        self.event_addresses = cast(
            "EventAddressServiceAsyncStub", event_addresses_pb2_grpc.EventAddressServiceStub(channel)
        )
        self.events = cast("EventServiceAsyncStub", events_pb2_grpc.EventServiceStub(channel))
        self.explain = cast("ExplainServiceAsyncStub", explain_pb2_grpc.ExplainServiceStub(channel))
        self.fleet = cast("FleetServiceAsyncStub", fleet_pb2_grpc.FleetServiceStub(channel))
        self.frontend = cast("FrontendServiceAsyncStub", frontend_pb2_grpc.FrontendServiceStub(channel))
        self.gates = cast("GateServiceAsyncStub", gates_pb2_grpc.GateServiceStub(channel))
        self.graphs = cast("GraphServiceAsyncStub", graphs_pb2_grpc.GraphServiceStub(channel))
        self.inspection = cast(
            "InspectionServiceAsyncStub", inspection_pb2_grpc.InspectionServiceStub(channel)
        )
        self.limits = cast("LimitServiceAsyncStub", limits_pb2_grpc.LimitServiceStub(channel))
        self.objectives = cast("ObjectiveServiceAsyncStub", objectives_pb2_grpc.ObjectiveServiceStub(channel))
        self.output = cast("OutputServiceAsyncStub", output_pb2_grpc.OutputServiceStub(channel))
        self.pools = cast("PoolServiceAsyncStub", pools_pb2_grpc.PoolServiceStub(channel))
        self.problems = cast("ProblemServiceAsyncStub", problems_pb2_grpc.ProblemServiceStub(channel))
        self.registry = cast("RegistryServiceAsyncStub", registry_pb2_grpc.RegistryServiceStub(channel))
        self.sessions = cast("SessionServiceAsyncStub", sessions_pb2_grpc.SessionServiceStub(channel))
        self.settings = cast("SettingsServiceAsyncStub", settings_pb2_grpc.SettingsServiceStub(channel))
        self.time_tables = cast(
            "TimeTableServiceAsyncStub", time_tables_pb2_grpc.TimeTableServiceStub(channel)
        )
        self.watches = cast("WatchServiceAsyncStub", watches_pb2_grpc.WatchServiceStub(channel))


class FrontendCalls:
    """Makes calls for one person."""

    def __init__(self, stubs: FrontendStubs, token: str, timeout: float) -> None:
        self.stubs = stubs
        self._token = token
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self.timeout = timeout
        """Seconds, of a call and of the page that makes it."""
        self.missing_cells: set[str] = set()
        """Cells that some answer lacks."""
        self.late_cells: set[str] = set()
        """Cells that are away, and get some change when they are back."""

    def within(self, timeout: float) -> "FrontendCalls":
        """Return calls of the same person that wait less long, in seconds."""
        calls = FrontendCalls(self.stubs, self._token, timeout)
        calls.missing_cells, calls.late_cells = self.missing_cells, self.late_cells
        return calls

    async def __call__(self, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Make one call.

        Raises:
            grpc.aio.AioRpcError: it failed.
        """
        sent = method(request, metadata=self._metadata, timeout=self.timeout)
        answer = await sent
        if isinstance(sent, grpc.aio.Call):
            metadata = await sent.trailing_metadata()
            self.missing_cells.update(missing_cells.read(metadata))
            self.late_cells.update(missing_cells.read(metadata, missing_cells.LATER))
        return answer
