"""Tells whether the ramp of a lambda sent a task to a version."""

from duly_core.lambdas.declarations import pinned_name
from duly_core.lambdas.names import base_name
from duly_core.lambdas.ramps import Ramp, together
from duly_core.lambdas.session_names import SessionId
from duly_core.tasks.store import TaskRow


def is_ramped(row: TaskRow) -> bool:
    """Tell whether the ramp that the lambda has now sends a task where it is. A client may have pinned it there, too."""
    if (
        row["ramp_version"] is None
        or row["has_key"]
        or row["graph"] is not None
        or row["time_table"] is not None
    ):
        return False
    name = base_name(row["lambda"])
    if row["lambda"] != pinned_name(name, row["ramp_version"]):
        return False
    session = SessionId.parse(row["session"]).key if row["session"] is not None else ""
    key = together(session, row["fair_key"] or "", row["task_id"].bytes)
    return Ramp(row["ramp_version"], row["ramp_permille"]).takes(name, key)
