"""The reasons of tasks that wait for others: for their session, their graph, or units of a resource."""

from collections.abc import Sequence

from duly_core.access.grants import Scope
from duly_core.config.settings import format_duration
from duly_core.explain.reads import MOST_COUNTED, read_related
from duly_core.explain.waits import (
    MOST_SHOWN,
    WaitRow,
    count_parked_before,
    read_holders,
    read_nodes,
    read_resources,
    read_session,
)
from duly_core.lambdas.session_names import SessionId
from duly_core.limits.store import LARGEST_RATE, UNLIMITED
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.gates import GATE, gate_reasons
from duly_frontend.explain.text import command, may_be_named, number, reason, related, span
from duly_wire.v1 import explain_pb2


async def waiting_reasons(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    """Say what a task waits for that is no time.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if row["doom"] is not None:
        why = (
            "what it waits for in its graph cannot happen"
            if row["graph"]
            else "a task before it in its session failed"
        )
        return [
            reason(
                explain_pb2.REASON_KIND_ENDS_SOON,
                f"{why}: a Store Consumer ends it without a run",
                f"if it does not end, check the Store Consumer: {command('health')}",
                graph_id=str(row["graph"] or ""),
                session=SessionId.parse(row["session"]).key if row["session"] else "",
            )
        ]
    found = []
    if row["parked_on"] is not None:
        found = await _parked(store, row, scope)
    elif row["session"] is not None:
        found = await _in_session(store, row, scope)
    elif row["graph"] is not None:
        found = await _in_graph(store, row, scope)
    return found + await gate_reasons(store, row)


async def _in_session(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    of_session = SessionId.parse(row["session"])
    key = of_session.key
    session = await read_session(store, row)
    if session is None:
        return []
    first = session["blocked_by"] or session["head"]
    known = [each for each in (await read_related(store, {first})).values() if may_be_named(each, scope)]
    named = [related(each) for each in known]
    if session["blocked_by"] is not None and not session["doomed"]:
        blocked_for = span(row["now"] - session["blocked_at"])
        return [
            reason(
                explain_pb2.REASON_KIND_SESSION_BLOCKED,
                f"a task that failed for good blocks its session {key}, for {blocked_for} now",
                f"fix the cause, then {command('redrive', str(first))}, or "
                f"{command('sessions', 'unblock', *_arguments(of_session))}"
                if named
                else "",
                since_at=session["blocked_at"],
                session=key,
                count=session["before"],
                tasks=named,
            )
        ]
    before = session["before"] + 1
    many = "at least " if session["before"] >= MOST_COUNTED else ""
    head = f"; the first is {known[0]['task_id']} ({known[0]['status']})" if known else ""
    return [
        reason(
            explain_pb2.REASON_KIND_SESSION,
            f"{many}{number(before, 'task')} {'is' if before == 1 else 'are'} before it in its session {key}{head}",
            f"look at the first: {command('explain', str(first))}" if named else "",
            session=key,
            count=before,
            is_estimated=bool(many),
            tasks=named,
        )
    ]


def _arguments(session: SessionId) -> list[str]:
    namespace = ["--namespace", session.namespace] if session.namespace else []
    return [*namespace, session.key]


async def _in_graph(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    nodes = await read_nodes(store, row)
    still_open = [node for node in nodes if node["is_open"]]
    named = [node for node in still_open if may_be_named(node, scope)][:MOST_SHOWN]
    count = max(len(still_open), 0 if still_open else row["open_edges"] or 0)
    labels = ", ".join(node["label"] for node in named[:5])
    more = " and others" if len(still_open) > len(named[:5]) else ""
    which = f": {labels}{more}" if labels else ""
    verb = "one of " if row["any_of"] and count > 1 else ""
    return [
        reason(
            explain_pb2.REASON_KIND_GRAPH,
            f"it waits for {verb}{number(count, 'node')} of its graph{which}",
            f"look at the first: {command('explain', str(named[0]['task_id']))}" if named else "",
            graph_id=str(row["graph"]),
            count=count,
            tasks=[related(node, node["label"]) for node in named],
        )
    ]


async def _parked(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    name, key = row["parked_on"], row["parked_key"]
    if name.startswith(GATE):
        return []
    resources = [
        each for each in await read_resources(store, row) if (each["name"], each["key"]) == (name, key)
    ]
    before = await count_parked_before(store, row)
    return [await _lacking(store, resource, scope, before=before) for resource in resources[:1]] or [
        reason(
            explain_pb2.REASON_KIND_RESOURCE,
            f"it waits for units of {_place(name, key)}, which is no longer declared: it is released soon",
            resource=_place(name, key),
        )
    ]


async def lacking_units(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    """Say which resources have too few units now for a task that is not parked on them.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    short = [
        each
        for each in await read_resources(store, row)
        if each["used"] + each["weight"] > each["capacity"] or not each["capacity"]
    ]
    return [await _lacking(store, each, scope) for each in short]


async def _lacking(
    store: Store, resource: WaitRow, scope: Scope | None, before: int | None = None
) -> explain_pb2.Reason:
    name, key = resource["name"], resource["key"]
    place = _place(name, key)
    holders: Sequence[WaitRow] = await read_holders(store, name, key) if resource["used"] else ()
    if resource["capacity"] == 0:
        text = f"{place} has no units: it holds back every task that needs it"
    elif before is None:
        text = f"{resource['used']:,} of {resource['capacity']:,} units of {place} are taken: it will wait for some"
    else:
        text = f"{resource['used']:,} of {resource['capacity']:,} units of {place} are taken"
        text += (
            f"; {number(before, 'task')} of its lambda {'waits' if before == 1 else 'wait'} before it"
            if before
            else ""
        )
    if resource["note"]:
        text += f" ({resource['note']})"
    return reason(
        explain_pb2.REASON_KIND_RESOURCE,
        text,
        _more_units(resource),
        resource=place,
        count=resource["used"],
        limit=resource["capacity"],
        tasks=[related(each) for each in holders if may_be_named(each, scope)],
    )


def _more_units(resource: WaitRow) -> str:
    """Return how a task comes to units: the number named is the smallest with which it, or one before it, may run."""
    needed = min(UNLIMITED, max(resource["capacity"], resource["used"]) + 1)
    if resource["used"] and resource["capacity"]:
        needed = min(UNLIMITED, max(needed, resource["used"] + resource["weight"]))
    raised = command("resources", "set", resource["name"], str(needed))
    if not resource["capacity"]:
        return f"nothing runs until it has units: find out why it has none, then {raised}, or more"
    return f"wait until others end, or raise the capacity: {raised}, or more"


async def faster_rates(store: Store, row: TaskRow) -> str:
    """Return how a task comes to an earlier start: twice the rates of its resources. Another rate begins anew.

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
