"""Says a problem in words: one sentence, whom it hits, and the commands that end it. No I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.fleet.services import AS_FRONTEND, AS_HSC, AS_STORE_CONSUMER
from duly_core.problems.budgets import CALLS
from duly_core.problems.kinds import Kind
from duly_core.problems.problem import FoundProblem
from duly_core.process.newer_values import known
from duly_frontend.explain.text import command, number, span
from duly_wire.enums import FailureKind
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
        ((_plain("health"), "says SERVING once Postgres answers again"),),
    )


def _cell_away(problem: FoundProblem, _now: datetime) -> Said:
    ends = (
        (
            (_plain("cells", "move", problem.subject), "goes on with the move, and ends it"),
            (_plain("cells", "move", problem.subject, "--abort"), "gives the move up"),
        )
        if problem.values.get("fenced")
        else ()
    )
    stand = f"tasks of {problem.values['namespaces']} stand, all others run"
    return Said(
        f"{problem.values['error']}: {'if it is away, ' if problem.values.get('late') else ''}{stand}",
        (
            *ends,
            (_plain("cells", "check"), "shows what is wrong with it, and what helps"),
            (_plain("cells", "list"), "shows all cells, and whether each answers"),
        ),
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
            (_plain("dead-letters", "list", "--lambda", problem.subject), "shows what failed for good"),
            (
                _plain("breakers", "show", problem.subject),
                "shows how it stands; it closes once probes succeed",
            ),
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
            (_plain("hosts", "list"), "lists the hosts"),
            (_plain("explain", "TASK"), "says where a task is that one of them held"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_HOSTS,
        problem.hosts[0].host_id if len(problem.hosts) == 1 else "",
    )


def _named(names: list[str], count: int, most: int = 3) -> str:
    shown = [*dict.fromkeys(names)][:most]
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"{', '.join(shown)}{more}"


def _store_slow(problem: FoundProblem, _now: datetime) -> Said:
    took = int(problem.values["milliseconds"])
    return Said(
        f"Postgres takes {took:,} ms and more for statements that take one: all of Duly is slower by it",
        ((_plain("activity"), "shows how much is scheduled and runs"),),
    )


def _service_away(problem: FoundProblem, _now: datetime) -> Said:
    name = problem.subject
    last = f"; the last ran on {problem.hosts[0].name}" if problem.hosts else ""
    return Said(
        f"no {_SERVICES.get(problem.subject, name)} reports itself{last}: {_EFFECTS.get(problem.subject, '')}",
        (
            (_plain("services", "list"), "lists the services"),
            (_plain(name), "starts one, if it runs by itself"),
        ),
    )


_SERVICES = {AS_STORE_CONSUMER: "Store Consumer", AS_HSC: "HSC", AS_FRONTEND: "Frontend"}
_EFFECTS = {
    AS_STORE_CONSUMER: "timeouts, retries of silent workers, time tables and breakers stand still",
    AS_HSC: "no worker gets a task",
}


def _no_host(problem: FoundProblem, _now: datetime) -> Said:
    lambdas = list(problem.lambdas)
    what = lambdas[0] if problem.lambda_count == 1 else number(problem.lambda_count, "lambda")
    last = ""
    if problem.hosts:
        state = problem.values.get("state", "")
        went = {"silent": "is silent", "stopped": "has stopped", "draining": "takes no more tasks"}.get(
            state, "missed a report"
        )
        last = f": the last one, {problem.hosts[0].name}, {went}"
    return Said(
        f"no live host serves {what} with due tasks{last}",
        (
            (_plain("hosts", "list"), "lists the hosts"),
            (_plain("worker", "MODULE:APP"), "starts a worker that serves them, on their machine"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_HOSTS,
        problem.hosts[0].host_id if problem.hosts else "",
    )


def _slots_held(problem: FoundProblem, now: datetime) -> Said:
    values = problem.values
    slots, held = int(values["slots"]), int(values["held"])
    who = problem.subject or "another lambda"
    least = "at least " if held < slots and int(values["shown"]) < slots else ""
    text = (
        f"{who} holds {least}{held:,} of the {number(slots, 'slot')} that others wait for, "
        f"the first for {span(now - problem.since_at)}"
    )
    if not problem.subject:
        return Said(text, ((_plain("hosts", "list"), "lists the hosts and their slots"),))
    half = max(1, slots // 2)
    quota = values.get("quota", "")  # rows of the release before have none
    # a quota that is there may only be lowered; it does not end what runs
    limits: tuple[tuple[str, str], ...] = ()
    if not quota or int(quota) > half:
        limits = (
            (
                _plain("resources", "set", f"lambda:{problem.subject}", str(half)),
                "is a quota: it keeps slots for others",
            ),
        )
    ids = [each.task_id for each in problem.holders[:_MOST_IDS]]
    ends = ((_plain("cancel", "--kill", *ids), "ends the first of them, whatever they do"),) if ids else ()
    return Said(
        text,
        (
            *ends,
            (_plain("list", "--lambda", problem.subject, "--status", "processing"), "shows those that run"),
            *limits,
        ),
        problems_pb2.PROBLEM_ACTION_KIND_CANCEL_TASKS,
        problem.subject,
    )


_MOST_IDS = 4


def _budget(problem: FoundProblem, _now: datetime) -> Said:
    values = problem.values
    rate = f"the error budget of {values['window']} is spent {values['burn_rate']} times as fast as allowed, or faster"
    if problem.key == CALLS:
        return Said(
            f"{number(int(values['calls']), 'call')} that schedule failed in the last {values['long']}: {rate}",
            (
                (_plain("slo"), "shows what is promised, and what is left"),
                (_plain("health"), "says whether Frontends and Postgres answer"),
            ),
        )
    only = problem.lambda_count == 1
    first = next(iter(problem.lambdas), "")
    of = f" of {first}" if only else f" of {number(problem.lambda_count, 'lambda')}" if first else ""
    late = f"{number(problem.tasks, 'run')}{of}" if problem.tasks else f"runs{of}"
    late_by = (
        f"more than {values['within']} late" if values["within"] else "later than their objectives allow"
    )
    return Said(
        f"{late} began {late_by} in the last {values['long']}: {rate}",
        (
            (
                _plain("slo", "show", first) if only else _plain("slo"),
                "shows what is promised, and what is left",
            ),
            (_plain("backlog", "show", *([first] if only else [])), "shows what is due, and who serves it"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_LAMBDA if only else _NOTHING,
        first if only else "",
    )


def _late(problem: FoundProblem, now: datetime) -> Said:
    lambdas = list(problem.lambdas)
    what = lambdas[0] if problem.lambda_count == 1 else number(problem.lambda_count, "lambda")
    why = problem.values.get("why", "")
    first = lambdas[0] if lambdas else ""
    within = problem.values.get("within")  # rows of the release before have none
    promised = f", where {within} is promised" if within else ", more than their objectives allow"
    return Said(
        f"tasks of {what} are {span(now - problem.since_at)} late{'' if within is None else promised}{': ' if why else ''}{why}",
        (
            (_plain("backlog", "show", first), "shows what is due, and who serves it"),
            (_plain("explain", "TASK"), "says of one task why it waits"),
            (
                _plain("slo", *(["show", first] if problem.lambda_count == 1 else [])),
                "shows what is promised, and what is left",
            ),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_LAMBDA if problem.lambda_count == 1 else _NOTHING,
        first if problem.lambda_count == 1 else "",
    )


_NOTHING = problems_pb2.PROBLEM_ACTION_KIND_UNSPECIFIED


def _lambda_gone(problem: FoundProblem, _now: datetime) -> Said:
    first = next(iter(problem.lambdas), "LAMBDA")
    names = _named(list(problem.lambdas), problem.lambda_count)
    return Said(
        f"tasks are due of lambdas that are not registered, or were deleted: {names}",
        (
            (_plain("lambdas", "restore", first), "lets its worker register it again when it starts"),
            (_plain("cancel", "--lambda", first), "ends its tasks"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_LAMBDA if problem.lambda_count == 1 else _NOTHING,
        first if problem.lambda_count == 1 else "",
    )


def _resource_full(problem: FoundProblem, now: datetime) -> Said:
    values = problem.values
    capacity, keys = int(values["capacity"]), int(values["keys"])
    of = f" for {number(keys, 'key')} of it" if keys else ""
    note = f" ({values['note']})" if values["note"] else ""
    name = problem.subject
    if not capacity:
        changed = span(now - datetime.fromisoformat(values["changed_at"]))
        text = f"the resource {name} has no units, changed {changed} ago: it holds back every task that needs it{note}"
    else:
        text = f"all {number(capacity, 'unit')} of the resource {name} are taken{of}; the first task that waits for them was due {span(now - problem.since_at)} ago{note}"
        if problem.holders and (held_since := problem.holders[0].held_since_at) is not None:
            first = problem.holders[0]
            text += f"; {first.lambda_name} has held the longest, for {span(now - held_since)}"
    return Said(
        text,
        (
            (_plain("resources", "set", name, str(max(1, 2 * capacity))), "gives it more units"),
            (_plain("audit", "list", "--method", "PutResource", "--mentions", name), "says who changed it"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_CHANGE_RESOURCE,
        name,
    )


def _dead_letters(problem: FoundProblem, now: datetime) -> Said:
    values = problem.values
    newest = span(now - datetime.fromisoformat(values["newest_at"]))
    exception = values["exception"] or _kind_words(int(values["failure_kind"]))
    message = f": {values['message']}" if values["message"] else ""
    name = problem.subject
    # a list has the tasks of one queue: those of a version are in another
    queue = problem.holders[0].lambda_name if problem.holders else name
    return Said(
        f"{number(problem.tasks, 'task')} of {name} failed for good by {exception}{message} (the newest {newest} ago)",
        (
            (_plain("dead-letters", "list", "--lambda", queue), "shows them"),
            (
                _plain("redrive", "--lambda", name, "--cause", problem.key, "--rate", _PACE),
                "runs those of this cause again, once it is fixed",
            ),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_REDRIVE,
        name,
    )


_PACE = "10/s"


def _kind_words(kind: int) -> str:
    member = known(FailureKind, kind)
    return "no exception" if member is None else member.name.lower().replace("_", " ")


def _sessions(problem: FoundProblem, _now: datetime) -> Said:
    values = problem.values
    # rows of the release before have other names
    count = int(values.get("count") or values.get("sessions") or 0)
    sessions = problem.sessions[:_MOST_IDS]
    session = sessions[0].key if sessions else ""
    namespace = ["--namespace", values["namespace"]] if values["namespace"] else []
    who = f" of {problem.subject}" if problem.subject else ""
    if not count:  # its caller does not see how many
        blocks = "failed tasks block sessions"
    elif count == 1:
        blocks = (
            f"a failed task blocks the session {session}" if session else "a failed task blocks a session"
        )
    else:
        blocks = f"failed tasks block {number(count, 'session')}"
    lists = _plain("sessions", "list", "--blocked", *namespace), "lists them, with the task that blocks each"
    if not sessions:
        return Said(
            f"{blocks}{who}", (lists,), problems_pb2.PROBLEM_ACTION_KIND_SHOW_SESSIONS, values["namespace"]
        )
    goes_on = "goes on without them: the next task runs"
    if count > 1 and problem.subject:
        unblocks = ["sessions", "unblock", "--blocked", *namespace, "--lambda", problem.subject]
    else:  # the failed tasks are gone: all that are blocked would be those of other lambdas, too
        keys = [each.key for each in sessions]
        ends_options = ["--"] if any(key.startswith("-") for key in keys) else []
        unblocks = ["sessions", "unblock", *namespace, *ends_options, *keys]
        if count > len(keys):
            goes_on = "goes on without the first of them: the next task runs"
    return Said(
        f"{blocks}{who}",
        (
            lists,
            (
                _plain("redrive", *(each.blocked_by for each in sessions)),
                "runs the failed tasks again, before those that wait, once the cause is fixed",
            ),
            (_plain(*unblocks), goes_on),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_UNBLOCK_SESSIONS,
        values["namespace"],
    )


def _clocks(problem: FoundProblem, _now: datetime) -> Said:
    first = problem.hosts[0]
    ahead = first.clock_ahead or timedelta()
    where = f"{first.service} on {first.name}" if first.service else first.name
    off = f"{span(abs(ahead))} {'ahead of' if ahead > timedelta() else 'behind'}"
    others = f", and {number(problem.host_count - 1, 'other')} differ" if problem.host_count > 1 else ""
    return Said(
        f"the clock of {where} is {off} Postgres's{others}: repair NTP there",
        (
            (_plain("hosts", "list"), "shows the clocks of hosts"),
            (_plain("services", "list"), "shows those of services"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_HOSTS,
        first.host_id,
    )


def _pool(problem: FoundProblem, _now: datetime) -> Said:
    failure = problem.values["failure"]
    return Said(
        f"the driver of the pool {problem.subject} does not start or end workers{': ' if failure else ''}{failure}",
        ((_plain("autoscaler", "explain", problem.subject), "says how many workers it is to have, and why"),),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_POOL,
        problem.subject,
    )


def _token(problem: FoundProblem, now: datetime) -> Said:
    values = problem.values
    note = f" ({values['note']})" if values["note"] else ""
    return Said(
        f"the token {problem.subject} of {values['principal']}{note} {_expires(values['expires_at'], now)}",
        (
            (_plain("tokens", "create", values["principal"]), "makes another one"),
            (_plain("tokens", "list"), "lists the tokens"),
        ),
        problems_pb2.PROBLEM_ACTION_KIND_SHOW_TOKENS,
    )


def _certificate(problem: FoundProblem, now: datetime) -> Said:
    return Said(
        f"the certificate of the {_SERVICES.get(problem.subject, problem.subject)} {_expires(problem.values['expires_at'], now)}",
        ((_plain("config"), "shows the file's path, rpc.cert_file; a new file is read without a restart"),),
    )


def _notifications(problem: FoundProblem, _now: datetime) -> Said:
    failure = problem.values["failure"]
    return Said(
        f"notifications to the target {problem.subject} do not arrive{': ' if failure else ''}{failure}",
        (
            (_plain("notifications", "test", problem.subject), "sends a test, and says what came of it"),
            (_plain("notifications", "list"), "lists the targets"),
        ),
    )


def _expires(text: str, now: datetime) -> str:
    left = datetime.fromisoformat(text) - now
    return f"expires in {span(left)}" if left > timedelta() else f"expired {span(-left)} ago"


_SAYINGS: Mapping[Kind, Callable[[FoundProblem, datetime], Said]] = {
    Kind.STORE_AWAY: _store_away,
    Kind.CELL_AWAY: _cell_away,
    Kind.STORE_SLOW: _store_slow,
    Kind.SERVICE_AWAY: _service_away,
    Kind.NO_HOST: _no_host,
    Kind.SLOTS_HELD: _slots_held,
    Kind.LATE: _late,
    Kind.BUDGET_BURNS: _budget,
    Kind.LAMBDA_GONE: _lambda_gone,
    Kind.BREAKER_OPEN: _breaker,
    Kind.PAUSED: _paused,
    Kind.RESOURCE_FULL: _resource_full,
    Kind.DEAD_LETTERS: _dead_letters,
    Kind.SESSIONS_BLOCKED: _sessions,
    Kind.SILENT_HOSTS: _silent_hosts,
    Kind.CLOCKS_APART: _clocks,
    Kind.POOL_DRIVER_FAILS: _pool,
    Kind.CERTIFICATE_EXPIRES: _certificate,
    Kind.TOKEN_EXPIRES: _token,
    Kind.NOTIFICATIONS_FAIL: _notifications,
}
