"""Converts hosts between the wire and the store, and checks what Controllers report."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from duly_core.fleet.hosts import ExecutorReport, HostReport, HostState, ServedLambda, StoredHost
from duly_core.fleet.services import ServiceInstance
from duly_core.pools.rules import NO_POOL_NAME, POOL_NAME
from duly_core.rpc.requests.checks import check_holder, check_text, read_duration, read_instant
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_wire.peers import is_zone, split_peers
from duly_wire.queue_names import check_labels
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import fleet_pb2

_MOST_EXECUTORS = 256
_MOST_LAMBDAS = 10_000
_LONGEST_NAME = 255
_LARGEST_NUMBER = 1_000_000
_DIGEST_BYTES = 16
_INTERVALS = timedelta(seconds=1), timedelta(minutes=10)
_LONGEST_AGE = timedelta(days=3650)
_BACKENDS = ("store", "sqs")

_STATES = {
    HostState.ALIVE: fleet_pb2.HOST_STATE_ALIVE,
    HostState.DRAINING: fleet_pb2.HOST_STATE_DRAINING,
    HostState.STOPPED: fleet_pb2.HOST_STATE_STOPPED,
    HostState.SILENT: fleet_pb2.HOST_STATE_SILENT,
}
_STATES_FROM_WIRE: dict[int, HostState] = {number: state for state, number in _STATES.items()}


def read_states(values: Sequence[int]) -> list[HostState]:
    """Return the states that a request names.

    Raises:
        Problem: there is no such state.
    """
    try:
        return [_STATES_FROM_WIRE[value] for value in values]
    except KeyError:
        raise Problem("states", "must be states: ALIVE, DRAINING, STOPPED or SILENT") from None


def read_report(request: fleet_pb2.ReportHostRequest) -> HostReport:
    """Return what a Controller says of its host.

    Raises:
        Problem: something in it is out of bounds.
    """
    check_holder("host_id", request.host_id)
    check_text("name", request.name, _LONGEST_NAME)
    check_text("version", request.version, _LONGEST_NAME)
    if request.queue_backend not in _BACKENDS:
        raise Problem("queue_backend", f"must be one of {', '.join(_BACKENDS)}")
    if len(request.lambdas_digest) != _DIGEST_BYTES:
        raise Problem("lambdas_digest", f"must be {_DIGEST_BYTES} bytes")
    if len(request.executors) > _MOST_EXECUTORS:
        raise Problem("executors", f"there may be at most {_MOST_EXECUTORS}, not {len(request.executors):,}")
    least, most = _INTERVALS
    return HostReport(
        host_id=request.host_id,
        name=request.name,
        version=request.version,
        queue_backend=request.queue_backend,
        started_at=read_instant("started_at", request.started_at),
        interval=read_duration("interval", request.interval, most, least=least),
        draining=request.draining,
        stopped=request.stopped,
        executors=[_executor(place, each) for place, each in enumerate(request.executors)],
        lambdas_digest=request.lambdas_digest,
        settings_age=_settings_age(request),
        clock_ahead=_clock_ahead(request),
        pool=_pool(request),
    )


def _pool(request: fleet_pb2.ReportHostRequest) -> str:
    if request.pool and POOL_NAME.fullmatch(request.pool) is None:
        raise Problem("pool", NO_POOL_NAME)
    return request.pool


def _settings_age(request: fleet_pb2.ReportHostRequest) -> timedelta | None:
    if not request.HasField("settings_age"):
        return None
    return read_duration("settings_age", request.settings_age, _LONGEST_AGE, least=timedelta())


def _clock_ahead(request: fleet_pb2.ReportHostRequest) -> timedelta | None:
    if not request.HasField("clock_ahead"):
        return None
    return read_duration("clock_ahead", request.clock_ahead, _LONGEST_AGE, least=-_LONGEST_AGE)


def _executor(place: int, each: fleet_pb2.Executor) -> ExecutorReport:
    field = f"executors[{place}]"
    check_holder(f"{field}.executor_id", each.executor_id)
    check_text(f"{field}.version", each.version, _LONGEST_NAME)
    numbers = {
        "pid": each.pid,
        "processes": each.processes,
        "slots": each.slots,
        "busy_slots": each.busy_slots,
        "lambda_set": each.lambda_set,
    }
    for name, number in numbers.items():
        if not 0 <= number <= (_MOST_EXECUTORS if name == "lambda_set" else 2**31 - 1):
            raise Problem(f"{field}.{name}", "is out of range")
    if max(each.processes, each.slots) > _LARGEST_NUMBER:
        raise Problem(f"{field}.slots", f"must be at most {_LARGEST_NUMBER:,}")
    started_at = ""
    if each.HasField("started_at"):
        started_at = read_instant(f"{field}.started_at", each.started_at).isoformat()
    return ExecutorReport(
        executor_id=each.executor_id,
        pid=each.pid,
        version=each.version,
        processes=each.processes,
        slots=each.slots,
        busy_slots=each.busy_slots if each.HasField("busy_slots") else None,
        started_at=started_at,
        lambda_set=each.lambda_set,
        labels=_labels(f"{field}.labels", each.labels),
        zone=_zone(f"{field}.zone", each.zone),
    )


def _zone(field: str, name: str) -> str:
    if name and not is_zone(name):
        raise Problem(field, "must be letters, digits, dots, hyphens and underscores, at most 63")
    return name


def _labels(field: str, labels: Sequence[str]) -> list[str]:
    try:
        return check_labels(labels).split(",") if labels else []
    except ValueError as error:
        raise Problem(field, str(error)) from None


def read_lambdas(request: fleet_pb2.ReportHostRequest) -> list[ServedLambda] | None:
    """Return the lambdas that a Controller says its Executors serve; None: as it said before.

    Raises:
        Problem: there are too many, or a name is invalid.
    """
    if not request.lambda_sets:
        return None
    number = sum(len(each.lambdas) for each in request.lambda_sets)
    if len(request.lambda_sets) > _MOST_EXECUTORS or number > _MOST_LAMBDAS:
        raise Problem(
            "lambda_sets", f"there may be at most {_MOST_EXECUTORS} with {_MOST_LAMBDAS:,} lambdas together"
        )
    found = []
    for place, each in enumerate(request.lambda_sets):
        for served in each.lambdas:
            field = f"lambda_sets[{place}].lambdas"
            check_lambda_name(field, served.name)
            check_text(field, served.version, _LONGEST_NAME)
            found.append(ServedLambda(served.name, served.version, place))
    return found


def host_to_wire(host: StoredHost) -> fleet_pb2.Host:
    """Return a host as the wire has it."""
    report = host.report
    message = fleet_pb2.Host(
        host_id=report.host_id,
        name=report.name,
        state=_STATES[host.state],
        version=report.version,
        queue_backend=report.queue_backend,
        started_at=to_timestamp(report.started_at),
        reported_at=to_timestamp(host.reported_at),
        interval=to_duration(report.interval),
        reported_by=host.reported_by,
        pool=report.pool,
        executors=map(_executor_to_wire, report.executors),
        lambda_count=host.lambda_count,
        lambdas=[
            fleet_pb2.ServedLambda(name=each.name, version=each.version, lambda_set=each.lambda_set)
            for each in host.lambdas
        ],
    )
    if report.clock_ahead is not None:
        message.clock_ahead.FromTimedelta(report.clock_ahead)
    return message


def _executor_to_wire(executor: ExecutorReport) -> fleet_pb2.Executor:
    message = fleet_pb2.Executor(
        executor_id=executor.executor_id,
        pid=executor.pid,
        version=executor.version,
        processes=executor.processes,
        slots=executor.slots,
        busy_slots=executor.busy_slots,
        lambda_set=executor.lambda_set,
        labels=executor.labels,
        zone=executor.zone,
    )
    if executor.started_at:
        message.started_at.FromDatetime(datetime.fromisoformat(executor.started_at))
    return message


def service_to_wire(service: ServiceInstance) -> fleet_pb2.ServiceInstance:
    """Return a process of a service as the wire has it."""
    (served,) = split_peers(service.address)
    message = fleet_pb2.ServiceInstance(
        instance_id=service.instance_id,
        service=service.service,
        host_name=service.host_name,
        version=service.version,
        address=served.address,
        zone=served.zone,
        state=_STATES[service.state],
        started_at=to_timestamp(service.started_at),
        reported_at=to_timestamp(service.reported_at),
    )
    if service.clock_ahead is not None:
        message.clock_ahead.FromTimedelta(service.clock_ahead)
    return message
