"""The reasons of tasks whose lambda is gone."""

from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import ago, command, reason
from duly_wire.queue_names import QueueName
from duly_wire.v1 import explain_pb2


def lambda_reasons(row: TaskRow) -> list[explain_pb2.Reason]:
    """Say that its lambda is gone, or that nobody declared the version that it is pinned to, or serves its domain."""
    name, version, domain, _ = QueueName.parse(row["lambda"])
    if row["deleted_at"] is not None:
        by = f" by {row['deleted_by']}" if row["deleted_by"] else ""
        return [
            reason(
                explain_pb2.REASON_KIND_LAMBDA_DELETED,
                f"its lambda was deleted {ago(row, row['deleted_at'])}{by}",
                f"{command('lambdas', 'restore', name)}, and start a worker that declares it; or "
                + command("cancel", str(row["task_id"])),
                since_at=row["deleted_at"],
            )
        ]
    if version and not row["version_is_declared"]:
        return [
            reason(
                explain_pb2.REASON_KIND_VERSION_UNKNOWN,
                f"no host has declared version {version} of {name}",
                f"start a worker with App(pinned=True) of that version, or {command('cancel', str(row['task_id']))}",
            )
        ]
    if domain and not row["is_registered"]:
        return [
            reason(
                explain_pb2.REASON_KIND_LAMBDA_UNKNOWN,
                f"no host of the domain {domain} has declared {name}",
                f"start a worker with --domain {domain}, or " + command("cancel", str(row["task_id"])),
            )
        ]
    if not row["is_registered"]:
        return [
            reason(
                explain_pb2.REASON_KIND_LAMBDA_UNKNOWN,
                f"no lambda {row['lambda']} is registered",
                f"start a worker that declares it, or {command('cancel', str(row['task_id']))}",
            )
        ]
    return []
