"""The reasons of tasks that wait for others: for their session, their graph, or units of a resource."""

from duly_core.access.grants import Scope
from duly_core.events.rules import PARKED_ON as EVENT
from duly_core.explain.reads import MOST_COUNTED, read_claims, read_related
from duly_core.explain.waits import MOST_SHOWN, read_nodes, read_session
from duly_core.lambdas.names import namespace_of
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.pool import Store
from duly_core.tasks.completions import PARKED_ON
from duly_core.tasks.history import events_of
from duly_core.tasks.store import TaskRow
from duly_core.tasks.waiting import IN_NO_SESSION_YET
from duly_frontend.explain.conditions import read_conditions
from duly_frontend.explain.gates import GATE
from duly_frontend.explain.text import command, may_be_named, number, reason, related, span
from duly_wire.enums import FailureKind
from duly_wire.v1 import explain_pb2


async def waiting_reasons(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    """Say what a task waits for that is no time.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if row["doom"] is not None:
        why = (
            "another node of its graph failed, and the graph fails fast"
            if row["doom"] == FailureKind.GRAPH_FAILED
            else "what it waits for in its graph cannot happen"
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
    if row["parked_on"] == PARKED_ON:
        return [_for_completion(row)]
    if row["parked_on"] == EVENT:
        return [_for_event(row)]
    if row["parked_on"] == IN_NO_SESSION_YET:
        return [_enters_session(row)]
    conditions = await read_conditions(store, row, scope, await read_claims(store, row))
    if row["parked_on"] is not None:
        if row["parked_on"].startswith(GATE):
            return conditions.reasons
        first, units = conditions.units[:1], conditions.units[1:]
        return [*first, *conditions.gates, *conditions.of_lambda, *units, *conditions.hosts]
    found = []
    # a node has the key of its session before it is in it
    if row["session"] is not None and row["parked_key"] is None:
        found = await _in_session(store, row, scope)
    elif row["graph"] is not None:
        found = await _in_graph(store, row, scope)
    return [*found, *_due_later(row), *conditions.reasons]


def _for_completion(row: TaskRow) -> explain_pb2.Reason:
    """Say that its callback handed it over."""
    until_at = row["next_trigger_at"]
    handed_over = [
        event.happened_at
        for event in events_of(row["events"], row["live_events"])
        if event.kind == "handed_over"
    ]
    left = (
        f"; in {span(until_at - row['now'])} this attempt has failed"
        if until_at > row["now"]
        else ": the time for it is over, and this attempt fails soon"
    )
    return reason(
        explain_pb2.REASON_KIND_COMPLETION,
        f"its callback handed it over, and it waits to be completed by token{left}",
        f"ask whoever has its token, or end it: {command('cancel', str(row['task_id']))}",
        since_at=handed_over[-1] if handed_over else None,
        until_at=until_at,
    )


def _for_event(row: TaskRow) -> explain_pb2.Reason:
    """Say which event its callback waits for."""
    until_at = row["next_trigger_at"]
    awaited = [
        event.happened_at
        for event in events_of(row["events"], row["live_events"])
        if event.kind == "event_awaited"
    ]
    keys = row["parked_key"].split(", ")
    named = f"the event {keys[0]}" if len(keys) == 1 else f"events: {row['parked_key']}"
    left = (
        f", for another {span(until_at - row['now'])} at most"
        if until_at > row["now"]
        else ": the time for it is over, and it runs again soon"
    )
    namespace = namespace_of(row["lambda"])
    where = ["--namespace", namespace] if namespace else []
    return reason(
        explain_pb2.REASON_KIND_EVENT,
        f"it waits for {named}{left}",
        f"send it with the value that its callback expects, such as true: {command('events', 'send', *where, keys[0], 'true')}",
        since_at=awaited[-1] if awaited else None,
        until_at=until_at,
    )


def _due_later(row: TaskRow) -> list[explain_pb2.Reason]:
    """Say that its time has not come either."""
    due_at, now = row["due_at"], row["now"]
    if due_at is None or due_at <= now:
        return []
    text = f"it is due in {span(due_at - now)}"
    return [reason(explain_pb2.REASON_KIND_DUE_LATER, text, until_at=due_at)]


def _enters_session(row: TaskRow) -> explain_pb2.Reason:
    """Say that its graph lets it run, and that it is about to enter its session."""
    key = SessionId.parse(row["session"]).key
    return reason(
        explain_pb2.REASON_KIND_SESSION,
        f"its graph lets it run, and it is about to enter its session {key}: a Store Consumer sees to it",
        "",
        session=key,
    )


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
