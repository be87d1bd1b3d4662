"""The reasons of tasks that hosts hold, and of those that have ended."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import ago, command, number, reason, span
from duly_wire.enums import FailureKind
from duly_wire.v1 import explain_pb2

_CANCELS = ("cancelled", "cancel_requested", "kill_requested")
_SUCCEEDED = "it succeeded {ago}{where}"
_LOOK = "look for {task_id} in the log of its worker there (with systemd: journalctl -u 'duly-worker@*')"


def ended_reasons(row: TaskRow, *, withheld: bool) -> list[explain_pb2.Reason]:
    """Say how a task ended."""
    status = Status(row["status"])
    action = ""
    if status is Status.SUCCESS:
        where = f", run {row['fence']} on {row['run_holder']}" if row["run_holder"] else ""
        text = _SUCCEEDED.format(ago=ago(row, row["finished_at"]), where=where)
    elif status is Status.CANCELLED:
        text = f"it was cancelled {ago(row, row['finished_at'])}{_canceller(row)}"
    elif status is Status.DROPPED:
        text = f"it was dropped {ago(row, row['finished_at'])}: {_why(row, withheld=withheld)}"
        if row["graph"]:
            action = f"read what its nodes waited for: {command('graphs', 'show', str(row['graph']))}"
    else:
        text = f"it failed for good {ago(row, row['finished_at'])}: {_why(row, withheld=withheld)}"
        action = f"fix the cause, then {command('redrive', str(row['task_id']))}"
    return [
        reason(
            explain_pb2.REASON_KIND_ENDED,
            text,
            action,
            since_at=row["finished_at"],
            holder=row["run_holder"] or "",
        )
    ]


def _canceller(row: TaskRow) -> str:
    """Return who asked for the cancel, if that is known."""
    name = _name_of_asker(row["events"])
    return f" by {name}" if name else ""


def _asker(row: TaskRow) -> str:
    """Return who asked for the end of a task that runs."""
    return _name_of_asker(row["live_events"]) or "somebody"


def _name_of_asker(events: Sequence[Mapping[str, Any]] | None) -> str:
    asked = [event for event in events or () if event["kind"] in _CANCELS]
    return next((event["by"] for event in reversed(asked) if event.get("by")), "")


def _why(row: TaskRow, *, withheld: bool) -> str:
    kind = _name_of(row["failure_kind"]) if row["failure_kind"] else ""
    message = "" if withheld else row["failure_message"] or ""
    return ": ".join(filter(None, (kind, message)))


def _name_of(kind: int) -> str:
    try:
        return FailureKind(kind).name.lower()
    except ValueError:
        return f"a failure that only a newer release knows ({kind})"


def held_reasons(row: TaskRow, heartbeat_timeout: timedelta, *, withheld: bool) -> list[explain_pb2.Reason]:
    """Say who holds a task, since when, and whether the holder is heard of."""
    now, until_at, holder = row["now"], row["next_trigger_at"], row["holder"]
    found = []
    if until_at <= now:
        found.append(
            reason(
                explain_pb2.REASON_KIND_HOLDER_SILENT,
                f"{holder} holds it, and was not heard of in time: its claim ended {ago(row, until_at)}",
                "check that machine; a Store Consumer takes the task back, and counts a crash; if not: "
                + command("health"),
                since_at=until_at,
                holder=holder,
            )
        )
        found += _grace(row, heartbeat_timeout)
    elif row["status"] == Status.CLAIMED:
        found.append(
            reason(
                explain_pb2.REASON_KIND_CLAIMED,
                f"{holder} claimed it {ago(row, row['claimed_at'])}, and has sent no heartbeat for it yet: "
                "its callback is about to start, or waits for a slot there",
                since_at=row["claimed_at"],
                until_at=until_at,
                holder=holder,
            )
        )
    else:
        found.append(
            reason(
                explain_pb2.REASON_KIND_RUNNING,
                f"{holder} has had it for {span(now - row['claimed_at'])}"
                + _overdue(row)
                + _heartbeat(row, heartbeat_timeout)
                + _progress(row, withheld=withheld),
                _LOOK.format(task_id=row["task_id"]),
                since_at=row["claimed_at"],
                until_at=until_at,
                holder=holder,
            )
        )
    if row["cancel_requested"]:
        found.append(_cancel_requested(row))
    return found


def _cancel_requested(row: TaskRow) -> explain_pb2.Reason:
    if row["kill_requested"]:
        return reason(
            explain_pb2.REASON_KIND_CANCEL_REQUESTED,
            f"{_asker(row)} asked to kill it: its holder is told by the next heartbeat, and ends its callback; other callbacks "
            "in that process may end before it (executor.neighbour_grace)",
            holder=row["holder"],
        )
    return reason(
        explain_pb2.REASON_KIND_CANCEL_REQUESTED,
        f"{_asker(row)} asked for its end: its holder is told by the next heartbeat",
        "a callback that does not look at ctx.cancelled is interrupted after executor.cancel_grace; to end it now: "
        + command("cancel", "--kill", str(row["task_id"])),
        holder=row["holder"],
    )


def _grace(row: TaskRow, heartbeat_timeout: timedelta) -> list[explain_pb2.Reason]:
    """Say that nothing is taken back yet, because Postgres was changed a moment ago."""
    changed_at = row["store_changed_at"]
    if changed_at is None or changed_at + heartbeat_timeout <= row["now"]:
        return []
    return [
        reason(
            explain_pb2.REASON_KIND_FAILOVER_GRACE,
            f"Postgres was restarted or failed over {ago(row, changed_at)}: heartbeats may be lost, and no task is taken "
            f"back for another {span(changed_at + heartbeat_timeout - row['now'])}",
            since_at=changed_at,
            until_at=changed_at + heartbeat_timeout,
        )
    ]


def _heartbeat(row: TaskRow, heartbeat_timeout: timedelta) -> str:
    age = heartbeat_timeout - (row["next_trigger_at"] - row["now"])
    return f"; last heartbeat {span(age)} ago" if timedelta() <= age <= heartbeat_timeout else ""


def _overdue(row: TaskRow) -> str:
    """Say that a callback was interrupted, does not end, and for how many others its process lives on."""
    since_at = row["overdue_since_at"]
    if since_at is None:
        return ""
    why = (
        "killed" if row["kill_requested"] else "cancelled" if row["cancel_requested"] else "over max_runtime"
    )
    neighbours = number(row["overdue_neighbours"] or 0, "neighbour")
    return f"; {why}, has not ended for {span(row['now'] - since_at)}: it waits for {neighbours} in its process (executor.neighbour_grace)"


def _progress(row: TaskRow, *, withheld: bool) -> str:
    if row["progress"] is None:
        return ""
    note = "" if withheld or not row["progress_note"] else f" ({row['progress_note']})"
    return f"; {row['progress'] * 100:.0f} % done{note}"
