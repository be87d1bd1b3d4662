"""The reasons of tasks that nobody has yet: their time, their lambda, and what is before them."""

from datetime import timedelta

from duly_core.access.grants import Scope
from duly_core.explain.reads import Load, read_load
from duly_core.lambdas.names import base_name
from duly_core.postgres.pool import Store
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.gates import gate_reasons
from duly_frontend.explain.hosts import host_reasons
from duly_frontend.explain.text import ago, command, number, reason, span
from duly_frontend.explain.waiting import faster_rates, lacking_units
from duly_wire.enums import Priority
from duly_wire.v1 import explain_pb2

_ABOUT_TO = timedelta(seconds=2)
"""As long as what is due may take to be picked."""


async def pending_reasons(
    store: Store, row: TaskRow, scope: Scope | None, *, withheld: bool
) -> list[explain_pb2.Reason]:
    """Say why a task is not picked: first what holds now, then what will.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    found = await _not_yet(store, row, withheld=withheld)
    is_due = not found
    gates = await gate_reasons(store, row)
    of_lambda = lambda_reasons(row)
    found += [*gates, *of_lambda]
    found += await lacking_units(store, row, scope)
    if is_due and not of_lambda and not gates:
        load = await read_load(store, row)
        hosts = await host_reasons(store, row, load)
        found += hosts
        if load.ahead or load.higher:
            found.append(_backlog(row, load))
        elif not hosts:
            found.append(_ready(row, load))
    return found


async def enqueued_reasons(store: Store, row: TaskRow) -> list[explain_pb2.Reason]:
    """Say why nobody has claimed a task whose reference is in a queue.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    load = await read_load(store, row)
    since_at = row["sent_at"]
    sent = f" {ago(row, since_at)}" if since_at else ""
    found = [
        reason(
            explain_pb2.REASON_KIND_ENQUEUED,
            f"its reference was sent to the queue of {row['lambda']}{sent}, and no host has claimed it",
            "no host takes it: are the slots full, or may the workers not read the queue? "
            + command("backlog", row["lambda"]),
            since_at=since_at,
            until_at=row["next_trigger_at"],
        )
    ]
    gates = await gate_reasons(store, row)
    found += [*gates, *lambda_reasons(row)]
    if not gates:
        found += await host_reasons(store, row, load)
    if load.ahead:
        found.append(_backlog(row, load))
    return found


def expiry_reasons(row: TaskRow) -> list[explain_pb2.Reason]:
    """Say when a task ends that nobody has by then."""
    expires_at = row["expires_at"]
    if expires_at is None:
        return []
    if expires_at <= row["now"]:
        return [
            reason(
                explain_pb2.REASON_KIND_ENDS_SOON,
                f"its expires_at passed {ago(row, expires_at)}: a Store Consumer ends it without a run",
                f"if it does not end, check the Store Consumer: {command('health')}",
                since_at=expires_at,
            )
        ]
    return [
        reason(
            explain_pb2.REASON_KIND_EXPIRES,
            f"it ends in {span(expires_at - row['now'])} if no worker has it by then (expires_at)",
            until_at=expires_at,
        )
    ]


def lambda_reasons(row: TaskRow) -> list[explain_pb2.Reason]:
    """Say that its lambda is gone, or that nobody declared the version that it is pinned to."""
    name, at, version = row["lambda"].partition("@")
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
    if at and not row["version_is_declared"]:
        return [
            reason(
                explain_pb2.REASON_KIND_VERSION_UNKNOWN,
                f"no host has declared version {version} of {name}",
                f"start a worker with App(pinned=True) of that version, or {command('cancel', str(row['task_id']))}",
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


async def _not_yet(store: Store, row: TaskRow, *, withheld: bool) -> list[explain_pb2.Reason]:
    """Say what a task waits for whose time has not come; nothing if it is due.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    until_at, now = row["next_trigger_at"], row["now"]
    if until_at <= now:
        return []
    left = span(until_at - now)
    if row["start_at"] is not None and row["start_at"] > now:
        return [
            reason(
                explain_pb2.REASON_KIND_RATE,
                f"the rate of a resource lets it start in {left}",
                await faster_rates(store, row),
                until_at=until_at,
            )
        ]
    if row["status"] == Status.RETRIABLE_FAILURE:
        return [_backoff(row, left, withheld=withheld)]
    return [reason(explain_pb2.REASON_KIND_DUE_LATER, f"it is due in {left}", until_at=until_at)]


def _backoff(row: TaskRow, left: str, *, withheld: bool) -> explain_pb2.Reason:
    failures, most = row["failures"], row["max_attempts"]
    tried = f"it failed {failures} of {most} times" if most else f"it failed {number(failures, 'time')}"
    if row["crashes"]:
        crashed = f"crashed {number(row['crashes'], 'time')}"
        tried = f"{tried} and {crashed}" if failures else f"it {crashed}"
    message = "" if withheld or not row["failure_message"] else f"; the last: {row['failure_message']}"
    return reason(
        explain_pb2.REASON_KIND_BACKOFF,
        f"{tried}; it runs again in {left}{message}",
        f"fix what fails; its backoff is in its lambda's policy: {command('lambdas', 'show', base_name(row['lambda']))}",
        until_at=row["next_trigger_at"],
        since_at=row["failed_at"],
        count=failures,
        limit=most,
    )


def _backlog(row: TaskRow, load: Load) -> explain_pb2.Reason:
    about = "about " if load.is_estimated else ""
    verb = "is" if load.ahead == 1 else "are"
    text = f"{about}{number(load.ahead, 'task')} of {row['lambda']} {verb} before it"
    if load.higher:
        text += f", and {number(load.higher, 'task')} of higher priorities"
    if load.wait is not None:
        text += f": at the present rate it waits about {span(load.wait)}"
    return reason(
        explain_pb2.REASON_KIND_BACKLOG,
        text,
        f"add workers or slots for its lambda{_raise_priority(row)}",
        since_at=row["next_trigger_at"] if row["status"] != Status.ENQUEUED else row["sent_at"],
        count=load.ahead,
        is_estimated=load.is_estimated,
        predicted_wait=load.wait,
    )


def _raise_priority(row: TaskRow) -> str:
    """Return how to let a task go before the others of its priority; nothing if it cannot."""
    higher = sorted(each for each in Priority if each < row["priority"])
    if row["status"] == Status.ENQUEUED or not higher:
        return ""
    return ", or raise its priority: " + command(
        "update", str(row["task_id"]), "--priority", higher[-1].name.lower()
    )


def _ready(row: TaskRow, load: Load) -> explain_pb2.Reason:
    due_at = row["next_trigger_at"]
    waited = row["now"] - due_at
    if waited < _ABOUT_TO:
        return reason(explain_pb2.REASON_KIND_READY, "it is due, and about to be picked", since_at=due_at)
    return reason(
        explain_pb2.REASON_KIND_READY,
        f"it is due since {span(waited)} and the first of its lambda and priority: it waits for a free slot; "
        f"{number(load.running, 'task')} of its lambda {'is' if load.running == 1 else 'are'} held now",
        f"add workers or slots, or reserve slots for its lambda; check the HSC: {command('health')}",
        since_at=due_at,
    )
