"""A lambda as the registry has it, and what became of one that was deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.lambdas.batch import Batch
from duly.lambdas.policy import Backoff
from duly.limits.resource import ResourceNeed
from duly_wire.time_conversion import to_datetime, to_timedelta
from duly_wire.v1 import registry_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaRamp:
    """So much of the new tasks of a lambda goes to one of its versions."""

    version: str
    percent: float

    def __str__(self) -> str:
        return f"{self.percent:g}% to version {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaInfo:
    """A registered lambda with every default filled in; the fields are those of `App.callback`."""

    name: str
    owner: str
    version: str
    max_attempts: int
    max_crashes: int
    crash_window: timedelta
    max_runtime: timedelta
    backoff: Backoff
    payload_limit: int
    registered_at: datetime
    updated_at: datetime
    # Which of its declarations this is; the principal that declared it.
    revision: int
    registered_by: str
    # Labels that a host must have to serve it.
    requires: tuple[str, ...] = ()
    # How many tasks one call of its callback takes; None: one.
    batch: Batch | None = None
    # Of which resources each of its tasks takes units.
    resources: tuple[ResourceNeed, ...] = ()
    # How much of its new tasks goes to one of its versions; None: all have the lambda itself.
    ramp: LambdaRamp | None = None
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @classmethod
    def from_proto(cls, registered: registry_pb2.RegisteredLambda) -> LambdaInfo:
        """Return the view of a lambda as it came over the wire."""
        declared = getattr(registered, "lambda")
        return cls(
            name=declared.name,
            owner=declared.owner,
            version=declared.version,
            max_attempts=declared.max_attempts,
            max_crashes=declared.max_crashes,
            crash_window=to_timedelta(declared.crash_window),
            max_runtime=to_timedelta(declared.max_runtime),
            backoff=Backoff(
                initial=to_timedelta(declared.backoff.initial) or None,
                factor=declared.backoff.factor or None,
                maximum=to_timedelta(declared.backoff.max) or None,
            ),
            payload_limit=declared.payload_limit,
            registered_at=to_datetime(registered.registered_at),
            updated_at=to_datetime(registered.updated_at),
            revision=registered.revision,
            registered_by=registered.registered_by,
            requires=tuple(declared.requires),
            batch=Batch(declared.batch.size, to_timedelta(declared.batch.wait))
            if declared.HasField("batch")
            else None,
            resources=tuple(map(ResourceNeed.from_proto, declared.resources)),
            ramp=LambdaRamp(version=registered.ramp.version, percent=registered.ramp.permille / 10)
            if registered.HasField("ramp")
            else None,
            cell=registered.cell,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredVersion:
    """A version of a lambda that workers declared."""

    version: str
    first_declared_at: datetime
    # The last time that a worker with it started, to a minute.
    declared_at: datetime
    declared_by: str
    # One that was in force, and is not any more, comes back by `roll_back_lambda` only.
    was_in_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedLambda:
    """A lambda that was deleted, as it was."""

    owner: str
    version: str
    deleted_at: datetime
    deleted_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaDetail:
    """A lambda, and the versions of it that workers declared."""

    name: str
    # None: it was deleted.
    in_force: LambdaInfo | None
    # Those that were declared last before the others.
    versions: tuple[DeclaredVersion, ...]
    # Queues of tasks that are pinned to a version (NAME@VERSION), are in a domain (NAME@~DOMAIN) or require labels (NAME@:LABELS).
    pinned: tuple[str, ...]
    deleted: DeletedLambda | None

    @classmethod
    def from_proto(cls, name: str, response: registry_pb2.GetLambdaResponse) -> LambdaDetail:
        """Return the view of what came over the wire."""
        gone = response.deleted
        return cls(
            name=name,
            in_force=LambdaInfo.from_proto(response.in_force) if response.HasField("in_force") else None,
            versions=tuple(
                DeclaredVersion(
                    version=each.version,
                    first_declared_at=to_datetime(each.first_declared_at),
                    declared_at=to_datetime(each.declared_at),
                    declared_by=each.declared_by,
                    was_in_force=each.was_in_force,
                )
                for each in response.versions
            ),
            pinned=tuple(response.pinned),
            deleted=DeletedLambda(
                owner=gone.owner,
                version=gone.version,
                deleted_at=to_datetime(gone.deleted_at),
                deleted_by=gone.deleted_by,
            )
            if response.HasField("deleted")
            else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaDeletion:
    """What a lambda had when it was deleted; of very many live tasks at least so many."""

    name: str
    # Live tasks that nobody ran, and that somebody ran.
    pending: int
    running: int
    # Time tables that were deleted with it.
    time_tables: int
    # How many tasks `cancel_tasks` cancelled, or asked to stop.
    cancelled: int

    @classmethod
    def from_proto(
        cls, name: str, response: registry_pb2.DeleteLambdaResponse, cancelled: int
    ) -> LambdaDeletion:
        """Return the view of what came over the wire."""
        return cls(
            name=name,
            pending=response.pending,
            running=response.running,
            time_tables=response.time_tables,
            cancelled=cancelled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FairKey:
    """A fair key of a lambda; the key "" is that of tasks without one."""

    fair_key: str
    # How many of its tasks start in its turn.
    weight: int
    # Tasks that wait for their turn or their time, and whether there are more than were counted.
    waiting: int
    has_more: bool
    # When the first of them is due.
    first_due_at: datetime | None

    @classmethod
    def from_proto(cls, key: str, weight: int, waiting: registry_pb2.WaitingFairKey | None) -> FairKey:
        """Return the view of a key as it came over the wire."""
        return cls(
            fair_key=key,
            weight=weight,
            waiting=waiting.waiting if waiting else 0,
            has_more=waiting.has_more if waiting else False,
            first_due_at=to_datetime(waiting.first_due_at) if waiting else None,
        )
