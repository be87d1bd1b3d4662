"""What there is: hosts with their Executors, processes of services, and what waits in the queues of lambdas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly.transport.message_fields import view
from duly_wire.enums import HostState, Priority
from duly_wire.time_conversion import to_datetime

if TYPE_CHECKING:
    from duly_wire.v1 import fleet_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorInfo:
    """An Executor process of a host."""

    executor_id: str
    pid: int
    # Of Duly.
    version: str
    # Its callback processes, and how many callbacks each runs at a time.
    processes: int
    slots: int
    # Callbacks that ran when the host reported; None: unknown.
    busy_slots: int | None
    started_at: datetime | None
    # Which of the host's sets of lambdas it serves, as ServedLambda.lambda_set.
    lambda_set: int
    # What it says of its host: `gpu`, `region=eu`.
    labels: tuple[str, ...] = ()
    # Where its host is; empty: it has no zone.
    zone: str = ""

    @classmethod
    def from_proto(cls, executor: fleet_pb2.Executor) -> ExecutorInfo:
        """Return the view of an Executor as it came over the wire."""
        return view(cls, executor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLambda:
    """A lambda that Executors of a host serve."""

    name: str
    version: str
    lambda_set: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine with a Controller and its Executors, as it reported itself last."""

    # New for each start of its Controller.
    host_id: str
    name: str
    state: HostState
    # Of Duly.
    version: str
    queue_backend: str
    started_at: datetime
    reported_at: datetime
    # How often it reports; after three missed reports it is SILENT.
    interval: timedelta
    # The principal that reports it; empty: callers are not identified.
    reported_by: str
    executors: tuple[ExecutorInfo, ...]
    # How many lambdas it serves that the caller may see.
    lambda_count: int
    # With `include_lambdas` only; at most 1,000.
    lambdas: tuple[ServedLambda, ...] = ()
    # By how much its wall clock is ahead of Postgres's; negative: behind. None: unknown.
    clock_ahead: timedelta | None = None
    # The pool whose worker it says it is; empty: of none.
    pool: str = ""
    # The cells that it reports to; none: the installation has no cells.
    cells: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """How many callbacks it can run at a time."""
        return sum(each.processes * each.slots for each in self.executors)

    @property
    def busy_slots(self) -> int:
        """How many callbacks ran when it reported, of Executors that know."""
        return sum(each.busy_slots or 0 for each in self.executors)

    @property
    def labels(self) -> tuple[str, ...]:
        """What its Executors say of it: `gpu`, `region=eu`."""
        return tuple(sorted({label for each in self.executors for label in each.labels}))

    @property
    def zone(self) -> str:
        """Where it is, as it reports with its Executors; empty: it has no zone."""
        return next((each.zone for each in self.executors), "")

    @classmethod
    def from_proto(cls, host: fleet_pb2.Host) -> Host:
        """Return the view of a host as it came over the wire."""
        return view(
            cls,
            host,
            executors=tuple(map(ExecutorInfo.from_proto, host.executors)),
            lambdas=tuple(view(ServedLambda, each) for each in host.lambdas),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInstance:
    """A process of a Frontend, an HSC or a Store Consumer."""

    instance_id: str
    service: str
    # The machine's name.
    host_name: str
    version: str
    # Where it serves, as it sees it.
    address: str
    state: HostState
    started_at: datetime
    reported_at: datetime
    # By how much its machine's clock is ahead of Postgres's; negative: behind. None: unknown.
    clock_ahead: timedelta | None = None
    # Where it is; empty: it has no zone.
    zone: str = ""
    # The cells that it reports to; none: the installation has no cells.
    cells: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, service: fleet_pb2.ServiceInstance) -> ServiceInstance:
        """Return the view of a process as it came over the wire."""
        return view(cls, service)


@dataclass(frozen=True, slots=True)
class TaskCount:
    """A number of tasks.

    >>> str(TaskCount(120_000, estimated=True))
    '~120000'
    """

    count: int
    # True: estimated from a sample of the live tasks.
    estimated: bool = False

    @classmethod
    def from_proto(cls, count: fleet_pb2.TaskCount) -> TaskCount:
        """Return the view of a number as it came over the wire."""
        return cls(count.count, count.estimated)

    def __str__(self) -> str:
        return f"~{self.count}" if self.estimated else str(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaQueue:
    """The live tasks of a lambda and a priority, by what they wait for."""

    lambda_name: str
    priority: Priority
    # Due, and taken by nobody.
    ready: TaskCount
    # To run later: scheduled so; after a failure.
    scheduled: TaskCount
    backing_off: TaskCount
    # Waiting for a resource, for their session, or for other nodes of their graph.
    waiting: TaskCount
    # On their way in a queue of SQS.
    enqueued: TaskCount
    # Taken by a host: not started, running.
    claimed: TaskCount
    processing: TaskCount
    # Since when the oldest of `ready` is due; when the next of those to run later is.
    oldest_ready_at: datetime | None
    next_due_at: datetime | None
    # Since when the oldest of `processing` is held.
    oldest_claim_at: datetime | None
    # Hosts that are alive and serve the lambda.
    hosts: int
    # Scheduled in the ten seconds before `counted_at`; None: not asked for.
    recently_scheduled: TaskCount | None
    # When all this was counted.
    counted_at: datetime
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @property
    def live(self) -> TaskCount:
        """How many tasks have not ended."""
        counts = (
            self.ready,
            self.scheduled,
            self.backing_off,
            self.waiting,
            self.enqueued,
            self.claimed,
            self.processing,
        )
        return TaskCount(sum(each.count for each in counts), any(each.estimated for each in counts))

    @classmethod
    def from_proto(cls, queue: fleet_pb2.LambdaQueue, page: fleet_pb2.ListQueuesResponse) -> LambdaQueue:
        """Return the view of a queue as it came over the wire."""
        names = ("ready", "scheduled", "backing_off", "waiting", "enqueued", "claimed", "processing")
        counts = {name: TaskCount.from_proto(getattr(queue, name)) for name in names}
        recently = queue.recently_scheduled if queue.HasField("recently_scheduled") else None
        return view(
            cls,
            queue,
            **counts,
            recently_scheduled=recently and TaskCount.from_proto(recently),
            counted_at=to_datetime(page.counted_at),
        )
