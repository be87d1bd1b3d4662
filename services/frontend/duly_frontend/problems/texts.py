"""Says a problem in words: one sentence, whom it hits, and the commands that end it. No I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from duly_core.problems.kinds import Kind
from duly_core.problems.problem import FoundProblem
from duly_frontend.explain.text import command, number, span
from duly_wire.v1 import problems_pb2


@dataclass(frozen=True, slots=True)
class Said:
    """What people read of a problem."""

    text: str
    commands: tuple[tuple[str, str], ...] = ()
    """What ends it or shows more, each with what it does."""
    action: "problems_pb2.ProblemActionKind.ValueType" = problems_pb2.PROBLEM_ACTION_KIND_UNSPECIFIED
    target: str = ""


def say(problem: FoundProblem, now: datetime) -> Said:
    """Return a problem in words."""
    return _SAYINGS[problem.kind](problem, now)


def hits(problem: FoundProblem) -> str:
    """Return whom a problem hits, with counts; empty: nobody yet."""
    lambdas = problem.lambda_count
    only = next(iter(problem.lambdas), "")
    of = f" of {only}" if lambdas == 1 else f" of {number(lambdas, 'lambda')}" if lambdas else ""
    if problem.tasks:
        more = "at least " if problem.at_least else ""
        return f"{more}{number(problem.tasks, 'task')}{of}"
    return only if lambdas == 1 else number(lambdas, "lambda") if lambdas else ""


def _plain(*words: str) -> str:
    """Return a command as it is typed."""
    return command(*words).strip("`")


def _store_away(problem: FoundProblem, _now: datetime) -> Said:
    return Said(
        f"Postgres does not answer: {problem.values.get('error', '')}",
        ((_plain("health"), "checks each service and Postgres"),),
    )


def _paused(problem: FoundProblem, now: datetime) -> Said:
    values = problem.values
    until = values.get("until")
    left = f", for another {span(datetime.fromisoformat(until) - now)}" if until else ""
    owner = f" by {values['owner']}" if values["owner"] else ""
    why = f": {values['reason']}" if values["reason"] else ""
    return Said(
        f"the gate {problem.subject!r} {values['does']} {values['what']}{left} (set{owner}{why})",
        ((_plain("gates", "delete", problem.subject), "ends it"),),
        problems_pb2.PROBLEM_ACTION_KIND_REMOVE_GATE,
        problem.subject,
    )


def _breaker(problem: FoundProblem, _now: datetime) -> Said:
    probes = problem.values.get("state") == "half_open"
    does = "lets only probes run" if probes else "is open: none of its tasks run"
    return Said(
        f"too many runs of {problem.subject} failed, and its breaker {does}",
        (
            (_plain("dead-letters", "--lambda", problem.subject), "shows what failed for good"),
            (_plain("gates", "breakers"), "shows how the breaker stands; it closes once probes succeed"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_LAMBDA,
        problem.subject,
    )


def _silent_hosts(problem: FoundProblem, _now: datetime) -> Said:
    count = int(problem.values["number"])
    names = _named([host.name for host in problem.hosts], count)
    return Said(
        f"{number(count, 'host')} stopped reporting without saying that {'it ends' if count == 1 else 'they end'}: {names}",
        (
            (_plain("hosts"), "lists the hosts"),
            (_plain("explain", "TASK"), "says where a task is that one of them held"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_HOSTS,
        problem.hosts[0].host_id if len(problem.hosts) == 1 else "",
    )


def _named(names: list[str], count: int, most: int = 3) -> str:
    shown = [*dict.fromkeys(names)][:most]
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"{', '.join(shown)}{more}"


_SAYINGS: Mapping[Kind, Callable[[FoundProblem, datetime], Said]] = {
    Kind.STORE_AWAY: _store_away,
    Kind.PAUSED: _paused,
    Kind.BREAKER_OPEN: _breaker,
    Kind.SILENT_HOSTS: _silent_hosts,
}
