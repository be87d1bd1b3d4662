"""Turns what is wrong into the cards of the incident board: words, one button or link, a command. No I/O."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import quote

from google.protobuf.timestamp_pb2 import Timestamp

from duly_console.causes import PACE
from duly_console.formatting import counted, duration
from duly_console.rendering import query
from duly_console.viewer import Viewer
from duly_core.lambdas.names import DEFAULT_NAMESPACE
from duly_wire.gate_names import BREAKER
from duly_wire.time_conversion import to_timedelta
from duly_wire.v1 import problems_pb2

CARDS_SHOWN = 10
"""The others are folded."""
_LAMBDAS_LINKED = 3
_OLD = timedelta(seconds=15)
"""Frontends look every 10 s, and at a cell without problems every 30 s: what is older is said to be."""
_LEVELS = {
    problems_pb2.PROBLEM_SEVERITY_INFORMATION: "note",
    problems_pb2.PROBLEM_SEVERITY_WARNING: "warning",
    problems_pb2.PROBLEM_SEVERITY_CRITICAL: "critical",
}


@dataclass(frozen=True, slots=True)
class Button:
    """Leads to the page that counts what a change does, and asks whether to do it."""

    path: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """Leads to the page that shows more."""

    href: str
    text: str


@dataclass(frozen=True, slots=True)
class Card:
    """One problem as a page shows it."""

    problem: problems_pb2.Problem
    level: str
    text: str
    hits: str
    """Without the name of the lambda, if `lambdas` has it."""
    lambdas: Sequence[str]
    """To link to."""
    more_lambdas: int
    button: Button | None
    link: Link | None


@dataclass(frozen=True, slots=True)
class Status:
    """The one line that says how things stand."""

    state: str
    """healthy, warning, critical, or unknown."""
    title: str
    notes: int = 0
    """Cards of what is worth knowing, and not wrong."""
    as_of: Timestamp | None = None
    is_stale: bool = False
    age: str = ""
    """How old it is; empty: it holds now."""


def status_of(answer: problems_pb2.ListProblemsResponse | None, viewer: Viewer) -> Status:
    """Return how things stand; `answer`: None if the Frontend gave none."""
    if answer is None:
        return Status("unknown", "Not known")
    as_of = answer.as_of if answer.HasField("as_of") else None
    age = age_of(answer)
    levels = [each.severity for each in answer.problems]
    notes = levels.count(problems_pb2.PROBLEM_SEVERITY_INFORMATION)
    if answer.status == problems_pb2.PROBLEM_STATUS_PROBLEMS:
        is_critical = problems_pb2.PROBLEM_SEVERITY_CRITICAL in levels
        title = counted(answer.problem_count, "problem")
        return Status("critical" if is_critical else "warning", title, notes, as_of, answer.is_stale, age)
    if answer.status != problems_pb2.PROBLEM_STATUS_HEALTHY or answer.is_stale:
        return Status("unknown", "Not known", notes, as_of, answer.is_stale, age)
    title = "Healthy" if viewer.may_everywhere("READ") else "Your lambdas are healthy"
    return Status("healthy", title, notes, as_of, age=age)


def age_of(answer: problems_pb2.ListProblemsResponse | problems_pb2.CellStatus) -> str:
    """Return how old is what an answer says; empty: it is as new as Frontends look, or that is not known."""
    if not answer.HasField("age") or to_timedelta(answer.age) < _OLD:
        return ""
    return duration(answer.age)


def is_store_away(answer: problems_pb2.ListProblemsResponse | None) -> bool:
    """Whether an answer says that Postgres does not answer."""
    return answer is not None and any(
        each.kind == problems_pb2.PROBLEM_KIND_STORE_AWAY for each in answer.problems
    )


def cards_of(
    answer: problems_pb2.ListProblemsResponse | None,
    viewer: Viewer,
    back: str,
    gates: Container[str] | None = None,
) -> list[Card]:
    """Return the cards of an answer, in its order.

    Args:
        answer: None: there is none.
        viewer: buttons are those that this person may use.
        back: the page to which a change leads back.
        gates: names of gates in force: cards of others are left out, for they are older; None: all.
    """
    return [
        _card(each, viewer, back)
        for each in (answer.problems if answer else ())
        if gates is None or each.kind != problems_pb2.PROBLEM_KIND_PAUSED or each.subject in gates
    ]


def gates_on(cards: Sequence[Card]) -> set[str]:
    """Return the names of the gates that have a card; that of an open breaker says what its gate does."""
    marks = {problems_pb2.PROBLEM_KIND_PAUSED: "", problems_pb2.PROBLEM_KIND_BREAKER_OPEN: BREAKER}
    problems = [each.problem for each in cards if each.problem.kind in marks]
    return {marks[each.kind] + each.subject for each in problems}


def _card(problem: problems_pb2.Problem, viewer: Viewer, back: str) -> Card:
    lambdas = [*problem.lambdas[:_LAMBDAS_LINKED]]
    is_one = problem.lambda_count == 1 and bool(lambdas) and problem.hits.endswith(lambdas[0])
    return Card(
        problem=problem,
        level=_LEVELS.get(problem.severity, "warning"),
        text=_sentence(problem),
        hits=problem.hits.removesuffix(lambdas[0]) if is_one else problem.hits,
        lambdas=lambdas,
        more_lambdas=max(0, problem.lambda_count - len(lambdas)),
        button=_button(problem, viewer, back),
        link=_link(problem, viewer),
    )


def _sentence(problem: problems_pb2.Problem) -> str:
    """Return what is wrong as a sentence; names keep the letters that they have."""
    text = problem.text
    return text if problem.subject and text.startswith(problem.subject) else text[:1].upper() + text[1:]


def _button(problem: problems_pb2.Problem, viewer: Viewer, back: str) -> Button | None:
    """Return the change that fits, if the person may make it."""
    target = problem.action.target
    operates = viewer.may_everywhere("OPERATE")
    if problem.kind == problems_pb2.PROBLEM_KIND_BREAKER_OPEN:
        fields = {"lambda": problem.subject, "back": back}
        can = operates and bool(problem.subject)
        return Button("/gates/remove-breaker", "Remove the breaker ...", fields) if can else None
    if problem.kind == problems_pb2.PROBLEM_KIND_NOTIFICATIONS_FAIL:
        can = operates and bool(problem.subject)
        return Button("/notifications/test", "Send a test ...", {"name": problem.subject}) if can else None
    match problem.action.kind:
        case problems_pb2.PROBLEM_ACTION_KIND_REMOVE_GATE if operates and target:
            return Button("/gates/remove", "Remove the gate ...", {"name": target, "back": back})
        case problems_pb2.PROBLEM_ACTION_KIND_CANCEL_TASKS if problem.tasks and _may_end(problem, viewer):
            fields = {"fingerprint": problem.fingerprint, "back": back}
            return Button("/problems/kill", f"Kill {counted(len(problem.tasks), 'task')} ...", fields)
        case problems_pb2.PROBLEM_ACTION_KIND_UNBLOCK_SESSIONS if problem.sessions and _may_unblock(
            problem, viewer
        ):
            fields = {"fingerprint": problem.fingerprint, "back": back}
            number = counted(len(problem.sessions), "session")
            return Button("/problems/unblock", f"Unblock {number} ...", fields)
        case problems_pb2.PROBLEM_ACTION_KIND_REDRIVE if viewer.may("REDRIVE", target):
            fields = {
                "lambda": target,
                "cause": problem.cause.fingerprint,
                "rate": f"{PACE}",
                "back": back,
            }
            return Button("/dead-letters/redrive", "Redrive ...", fields)
        case problems_pb2.PROBLEM_ACTION_KIND_CHANGE_RESOURCE if operates and target:
            return Button("/resources/capacity", "Change the capacity ...", {"name": target, "back": back})
    return None


def _may_end(problem: problems_pb2.Problem, viewer: Viewer) -> bool:
    return all(viewer.may("CHANGE", getattr(each, "lambda")) for each in problem.tasks)


def _may_unblock(problem: problems_pb2.Problem, viewer: Viewer) -> bool:
    if not problem.subject:
        return viewer.may_everywhere("REDRIVE")
    return viewer.may("REDRIVE", problem.subject)


def _link(problem: problems_pb2.Problem, viewer: Viewer) -> Link | None:
    """Return the page that shows more; None: no page of the console does."""
    target = problem.action.target
    path = (
        _OWN_PAGES.get(problem.action.kind) if problem.kind != problems_pb2.PROBLEM_KIND_LAMBDA_GONE else None
    )
    if target and path and (path != "/pools/" or viewer.may_everywhere("READ")):
        return Link(f"{path}{quote(target)}", path.strip("/").removesuffix("s").capitalize())
    of_kind = _LISTS.get(problem.kind)
    return of_kind(problem) if of_kind else None


def _tasks(problem: problems_pb2.Problem, status: str) -> Link:
    name = problem.subject or next(iter(problem.lambdas), "")
    return Link(query("/tasks", **{"lambda": name, "status": status}), "Tasks")


def _dead(problem: problems_pb2.Problem) -> Link:
    cause = {"cause": problem.cause.fingerprint}
    # a list has the tasks of one queue: those of a version are in another
    if all(getattr(task, "lambda") == problem.subject for task in problem.tasks):
        cause["lambda"] = problem.subject
    return Link(query("/dead-letters", **cause), "Dead letters")


def _blocked(problem: problems_pb2.Problem) -> Link:
    namespace = problem.action.target or DEFAULT_NAMESPACE
    return Link(query("/sessions", blocked="1", namespace=namespace), "Blocked sessions")


_OWN_PAGES = {
    problems_pb2.PROBLEM_ACTION_KIND_SHOW_HOSTS: "/hosts/",
    problems_pb2.PROBLEM_ACTION_KIND_SHOW_LAMBDA: "/lambdas/",
    problems_pb2.PROBLEM_ACTION_KIND_SHOW_POOL: "/pools/",
}
_HOSTS = Link("/hosts", "Hosts and services")
_LISTS: Mapping[int, Callable[[problems_pb2.Problem], Link]] = {
    problems_pb2.PROBLEM_KIND_NO_HOST: lambda _: _HOSTS,
    problems_pb2.PROBLEM_KIND_SILENT_HOSTS: lambda _: _HOSTS,
    problems_pb2.PROBLEM_KIND_CLOCKS_APART: lambda _: _HOSTS,
    problems_pb2.PROBLEM_KIND_SERVICE_AWAY: lambda _: _HOSTS,
    problems_pb2.PROBLEM_KIND_CERTIFICATE_EXPIRES: lambda _: _HOSTS,
    problems_pb2.PROBLEM_KIND_BREAKER_OPEN: lambda _: Link("/gates", "Breakers"),
    problems_pb2.PROBLEM_KIND_PAUSED: lambda _: Link("/gates", "Gates"),
    problems_pb2.PROBLEM_KIND_SLOTS_HELD: lambda problem: _tasks(problem, "processing"),
    problems_pb2.PROBLEM_KIND_LATE: lambda _: Link("/queues?order=age", "Queues"),
    problems_pb2.PROBLEM_KIND_BUDGET_BURNS: lambda _: Link("/slo", "Promises"),
    problems_pb2.PROBLEM_KIND_LAMBDA_GONE: lambda problem: _tasks(problem, "live"),
    problems_pb2.PROBLEM_KIND_NOTIFICATIONS_FAIL: lambda _: Link("/notifications", "Notifications"),
    problems_pb2.PROBLEM_KIND_RESOURCE_FULL: lambda _: Link("/resources", "Resources"),
    problems_pb2.PROBLEM_KIND_DEAD_LETTERS: _dead,
    problems_pb2.PROBLEM_KIND_SESSIONS_BLOCKED: _blocked,
}
