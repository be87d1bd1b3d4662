"""Converts registered lambdas to the wire."""

import json

from duly_core.lambdas.administration import DeclaredVersion, LambdaDetail
from duly_core.lambdas.store import RegisteredLambda
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import registry_pb2, task_pb2


def to_wire(registered: RegisteredLambda) -> registry_pb2.RegisteredLambda:
    """Return a lambda with its policy."""
    policy = registered.policy
    message = registry_pb2.RegisteredLambda(
        registered_at=to_timestamp(registered.registered_at),
        updated_at=to_timestamp(registered.updated_at),
        revision=registered.revision,
        registered_by=registered.registered_by,
    )
    getattr(message, "lambda").CopyFrom(
        registry_pb2.Lambda(
            name=policy.name,
            owner=policy.owner,
            version=policy.version,
            max_attempts=policy.max_attempts,
            max_crashes=policy.max_crashes,
            crash_window=to_duration(policy.crash_window),
            max_runtime=to_duration(policy.max_runtime),
            backoff=registry_pb2.Backoff(
                initial=to_duration(policy.backoff_initial),
                factor=policy.backoff_factor,
                max=to_duration(policy.backoff_max),
            ),
            payload_limit=policy.payload_limit,
            requires=policy.requires.split(",") if policy.requires else (),
            resources=[task_pb2.ResourceNeed(**need) for need in json.loads(policy.needs or "[]")],
        )
    )
    if policy.batch_size:
        batch = registry_pb2.Batch(size=policy.batch_size, wait=to_duration(policy.batch_wait))
        getattr(message, "lambda").batch.CopyFrom(batch)
    if (ramp := registered.ramp) is not None:
        message.ramp.CopyFrom(registry_pb2.LambdaRamp(version=ramp.version, permille=ramp.permille))
    return message


def detail_to_wire(detail: LambdaDetail) -> registry_pb2.GetLambdaResponse:
    """Return all that is known about a lambda."""
    response = registry_pb2.GetLambdaResponse(
        versions=map(_version, detail.versions),
        pinned=detail.pinned,
    )
    if detail.in_force is not None:
        response.in_force.CopyFrom(to_wire(detail.in_force))
    if (gone := detail.deleted) is not None:
        response.deleted.CopyFrom(
            registry_pb2.DeletedLambda(
                owner=gone.owner,
                version=gone.version,
                deleted_at=to_timestamp(gone.deleted_at),
                deleted_by=gone.deleted_by,
            )
        )
    return response


def _version(declared: DeclaredVersion) -> registry_pb2.DeclaredVersion:
    return registry_pb2.DeclaredVersion(
        version=declared.version,
        first_declared_at=to_timestamp(declared.first_declared_at),
        declared_at=to_timestamp(declared.declared_at),
        declared_by=declared.declared_by,
        was_in_force=declared.was_in_force,
    )
