"""The reasons of tasks that need more units of a resource than are free, or a later start by its rate."""

from collections.abc import Sequence

from duly_core.access.grants import Scope
from duly_core.config.settings import format_duration
from duly_core.explain.waits import WaitRow, count_parked_before, read_holders, read_resources
from duly_core.limits.store import LARGEST_RATE, UNLIMITED
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.gates import GATE
from duly_frontend.explain.text import ago, command, may_be_named, number, reason, related, span
from duly_wire.v1 import explain_pb2


async def lacking_units(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    """Say which resources have too few units now: first the one that the task is parked on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    parked_on = _parked_on(row)
    found: list[explain_pb2.Reason] = []
    for each in await read_resources(store, row):
        if (each["name"], each["key"]) == parked_on:
            before = await count_parked_before(store, row)
            found.insert(0, await _lacking(store, row, each, scope, before))
            parked_on = None
        elif each["used"] + each["weight"] > each["capacity"] or not each["capacity"]:
            found.append(await _lacking(store, row, each, scope))
    if parked_on is not None:
        place = _place(*parked_on)
        text = f"it waits for units of {place}, which is no longer declared: it is released soon"
        found.insert(0, reason(explain_pb2.REASON_KIND_RESOURCE, text, resource=place))
    return found


def _parked_on(row: TaskRow) -> tuple[str, str] | None:
    """Return the resource and the key that a task is parked on; None: it is not."""
    name = row["parked_on"]
    return None if name is None or name.startswith(GATE) else (name, row["parked_key"])


async def _lacking(
    store: Store, row: TaskRow, resource: WaitRow, scope: Scope | None, before: int | None = None
) -> explain_pb2.Reason:
    name, key = resource["name"], resource["key"]
    place = _place(name, key)
    holders: Sequence[WaitRow] = await read_holders(store, name, key) if resource["used"] else ()
    named = [each for each in holders if may_be_named(each, scope)]
    if resource["capacity"] == 0:
        changed = f"{place} was last changed {ago(row, resource['changed_at'])}"
        text = f"the capacity of {place} is 0: it holds back every task that needs it; {changed}"
    elif before is None:
        text = f"{resource['used']:,} of {resource['capacity']:,} units of {place} are taken: it will wait for some"
    else:
        text = f"{resource['used']:,} of {resource['capacity']:,} units of {place} are taken"
        text += (
            f"; {number(before, 'task')} of its lambda {'waits' if before == 1 else 'wait'} before it"
            if before
            else ""
        )
    if named and named[0]["held_since_at"] is not None:
        first = named[0]
        held_for = span(row["now"] - first["held_since_at"])
        text += f"; {first['task_id']} ({first['lambda']}) has held {number(first['units'], 'unit')} for {held_for}"
    if resource["note"]:
        text += f" ({resource['note']})"
    return reason(
        explain_pb2.REASON_KIND_RESOURCE,
        text,
        _more_units(resource),
        resource=place,
        count=resource["used"],
        limit=resource["capacity"],
        tasks=[related(each) for each in named],
    )


def _more_units(resource: WaitRow) -> str:
    """Return how a task comes to units: the number named is the smallest with which it, or one before it, may run."""
    needed = min(UNLIMITED, max(resource["capacity"], resource["used"]) + 1)
    if resource["used"] and resource["capacity"]:
        needed = min(UNLIMITED, max(needed, resource["used"] + resource["weight"]))
    raised = command("resources", "set", resource["name"], str(needed))
    if not resource["capacity"]:
        who = command("audit", "--method", "PutResource", "--mentions", resource["name"])
        return f"nothing runs until it has units: find out why it has none ({who} says who changed it), then {raised}, or more"
    return f"wait until others end, or raise the capacity: {raised}, or more"


async def faster_rates(store: Store, row: TaskRow) -> str:
    """Return how a task comes to an earlier start: twice the rates of its resources. Another rate starts again.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rated = [
        each
        for each in await read_resources(store, row)
        if each["rate"] is not None and each["rate"] < LARGEST_RATE
    ]
    faster = [
        command(
            "resources",
            "set",
            each["name"],
            "--rate",
            f"{min(LARGEST_RATE, 2 * each['rate'])}/{format_duration(each['period'])}",
        )
        for each in rated
    ]
    if not faster:
        return f"wait; {command('resources', 'list')} shows the rates"
    return f"wait, or raise the rate, and what was put off is due at once: {', '.join(faster)}"


def _place(name: str, key: str) -> str:
    return f"{name}/{key}" if key else name
