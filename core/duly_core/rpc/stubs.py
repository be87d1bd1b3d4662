"""Stubs on asyncio channels, typed as what they are (the generated overloads lose that)."""

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from grpc.aio import ServicerContext

from duly_wire.v1.attachments_pb2_grpc import AttachmentServiceStub
from duly_wire.v1.controller_pb2_grpc import ControllerServiceStub
from duly_wire.v1.event_addresses_pb2_grpc import EventAddressServiceStub
from duly_wire.v1.fleet_pb2_grpc import FleetServiceStub
from duly_wire.v1.hsc_pb2_grpc import HscServiceStub
from duly_wire.v1.output_pb2_grpc import OutputServiceStub
from duly_wire.v1.registry_pb2_grpc import RegistryServiceStub

if TYPE_CHECKING:
    from duly_wire.v1.attachments_pb2_grpc import AttachmentServiceAsyncStub
    from duly_wire.v1.controller_pb2_grpc import ControllerServiceAsyncStub
    from duly_wire.v1.event_addresses_pb2_grpc import EventAddressServiceAsyncStub
    from duly_wire.v1.fleet_pb2_grpc import FleetServiceAsyncStub
    from duly_wire.v1.hsc_pb2_grpc import HscServiceAsyncStub
    from duly_wire.v1.output_pb2_grpc import OutputServiceAsyncStub
    from duly_wire.v1.registry_pb2_grpc import RegistryServiceAsyncStub

Context: TypeAlias = ServicerContext[Any, Any]
"""What gRPC tells a servicer of a call."""


def controller_stub(channel: grpc.aio.Channel) -> "ControllerServiceAsyncStub":
    """The Controller at the other end."""
    return cast("ControllerServiceAsyncStub", ControllerServiceStub(channel))


def hsc_stub(channel: grpc.aio.Channel) -> "HscServiceAsyncStub":
    """The HSC at the other end."""
    return cast("HscServiceAsyncStub", HscServiceStub(channel))


def registry_stub(channel: grpc.aio.Channel) -> "RegistryServiceAsyncStub":
    """The Frontend's registry at the other end."""
    return cast("RegistryServiceAsyncStub", RegistryServiceStub(channel))


def fleet_stub(channel: grpc.aio.Channel) -> "FleetServiceAsyncStub":
    """The Frontend's register of hosts at the other end."""
    return cast("FleetServiceAsyncStub", FleetServiceStub(channel))


def attachment_stub(channel: grpc.aio.Channel) -> "AttachmentServiceAsyncStub":
    """The Frontend's attachments at the other end."""
    return cast("AttachmentServiceAsyncStub", AttachmentServiceStub(channel))


def event_address_stub(channel: grpc.aio.Channel) -> "EventAddressServiceAsyncStub":
    """The Frontend's addresses of events at the other end."""
    return cast("EventAddressServiceAsyncStub", EventAddressServiceStub(channel))


def output_stub(channel: grpc.aio.Channel) -> "OutputServiceAsyncStub":
    """The Frontend's output of tasks at the other end."""
    return cast("OutputServiceAsyncStub", OutputServiceStub(channel))
