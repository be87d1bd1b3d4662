"""The reasons of tasks that nobody has yet: their time, their lambda, and what is before them."""

from datetime import timedelta

from duly_core.access.grants import Scope
from duly_core.explain.hosts import Serving
from duly_core.explain.reads import Load, read_load
from duly_core.explain.turns import read_turns
from duly_core.lambdas.names import base_name
from duly_core.postgres.pool import Store
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.conditions import Conditions, read_conditions
from duly_frontend.explain.slots import slot_reasons
from duly_frontend.explain.text import ago, command, number, reason, span
from duly_frontend.explain.turns import turn_reason
from duly_frontend.explain.units import faster_rates
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
    not_yet = await _not_yet(store, row, withheld=withheld)
    load = await read_load(store, row)
    conditions = await read_conditions(store, row, scope, load.claims)
    found = [*not_yet, *conditions.reasons]
    if not found and row["now"] - row["next_trigger_at"] >= _ABOUT_TO:
        found += await slot_reasons(store, row, scope)
    return found if not_yet else [*found, *await _in_line(store, row, load, conditions, is_full=bool(found))]


async def _in_line(
    store: Store, row: TaskRow, load: Load, conditions: Conditions, *, is_full: bool
) -> list[explain_pb2.Reason]:
    """Say what is before a task that is due, and may run; `is_full`: it was said why it does not.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if conditions.gates or conditions.of_lambda:
        return []
    may_run = not conditions.units and not conditions.hosts
    turns = await read_turns(store, row)
    if turns is not None and (turns.ahead or turns.others):
        return [turn_reason(row, turns, load.higher, may_run=may_run)]
    if load.ahead or load.higher:
        return [_backlog(row, load, may_run=may_run)]
    return [] if is_full else [_ready(row, load, conditions.serving)]


async def enqueued_reasons(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
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
    conditions = await read_conditions(store, row, scope, load.claims)
    # it has its units already
    held_back = [*conditions.gates, *conditions.of_lambda, *conditions.hosts]
    found += held_back or await slot_reasons(store, row, scope)
    if load.ahead:
        found.append(_backlog(row, load, may_run=not conditions.hosts))
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


def _backlog(row: TaskRow, load: Load, *, may_run: bool) -> explain_pb2.Reason:
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
        f"add workers or slots for its lambda{_raise_priority(row)}" if may_run else "",
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


def _ready(row: TaskRow, load: Load, serving: Serving) -> explain_pb2.Reason:
    due_at = row["next_trigger_at"]
    waited = row["now"] - due_at
    if waited < _ABOUT_TO:
        return reason(explain_pb2.REASON_KIND_READY, "it is due, and about to be picked", since_at=due_at)
    first = f"it has been due for {span(waited)}, and is the first of its lambda and priority"
    if serving.free_slots and serving.last_reported_at is not None:
        return reason(
            explain_pb2.REASON_KIND_READY,
            f"{first}, and no host has taken it: those that serve it reported "
            f"{number(serving.free_slots, 'free slot')} {ago(row, serving.last_reported_at)}",
            "free slots may be reserved for other lambdas; otherwise read the worker's log, and check the HSC: "
            + command("health"),
            since_at=due_at,
        )
    running = load.claims.running
    return reason(
        explain_pb2.REASON_KIND_READY,
        f"{first}: it waits for a free slot; "
        f"{number(running, 'task')} of its lambda {'is' if running == 1 else 'are'} held now",
        f"add workers or slots, or reserve slots for its lambda; check the HSC: {command('health')}",
        since_at=due_at,
    )
