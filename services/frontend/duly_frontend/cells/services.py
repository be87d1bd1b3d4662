"""The services of a Frontend, as protoc has them."""

import sys
from collections.abc import Mapping

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

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

SERVICES: tuple[type, ...] = (
    frontend_pb2_grpc.FrontendServiceServicer,
    graphs_pb2_grpc.GraphServiceServicer,
    registry_pb2_grpc.RegistryServiceServicer,
    sessions_pb2_grpc.SessionServiceServicer,
    events_pb2_grpc.EventServiceServicer,
    event_addresses_pb2_grpc.EventAddressServiceServicer,
    limits_pb2_grpc.LimitServiceServicer,
    settings_pb2_grpc.SettingsServiceServicer,
    explain_pb2_grpc.ExplainServiceServicer,
    gates_pb2_grpc.GateServiceServicer,
    objectives_pb2_grpc.ObjectiveServiceServicer,
    pools_pb2_grpc.PoolServiceServicer,
    problems_pb2_grpc.ProblemServiceServicer,
    time_tables_pb2_grpc.TimeTableServiceServicer,
    fleet_pb2_grpc.FleetServiceServicer,
    inspection_pb2_grpc.InspectionServiceServicer,
    attachments_pb2_grpc.AttachmentServiceServicer,
    output_pb2_grpc.OutputServiceServicer,
    watches_pb2_grpc.WatchServiceServicer,
    access_pb2_grpc.AccessServiceServicer,
)


def descriptor_of(base: type) -> ServiceDescriptor:
    """Return the descriptor of the service for which protoc made this servicer."""
    module = sys.modules[base.__module__.removesuffix("_grpc")]
    found: ServiceDescriptor = module.DESCRIPTOR.services_by_name[base.__name__.removesuffix("Servicer")]
    return found


METHODS: Mapping[str, MethodDescriptor] = {
    f"/{descriptor_of(base).full_name}/{method.name}": method
    for base in SERVICES
    for method in descriptor_of(base).methods
}
"""By path."""
