"""The incident, step by step: what operators type, and what they see."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

import duly
from scripts.incident.installation import Installation
from scripts.incident.terminal import Terminal
from scripts.incident.waiting import wait_until
from scripts.traffic import traffic

LAMBDA = "mail.send"
_WARM_UP = 60
"""Mails that are sent before anything breaks."""
_DEAD = 10
"""Dead letters that somebody wants to see."""
_GAP = 0.25
"""Seconds between two mails: a shop sends a few a second."""


@dataclass
class Story:
    """What the walk saw."""

    outputs: dict[str, str] = field(default_factory=dict)
    """What commands printed, by the names that the page uses."""
    deployed_at: dict[str, datetime] = field(default_factory=dict)
    dead: str = ""
    """A task that ended as a dead letter."""
    held: str = ""
    """A task that the breaker held back."""


Photograph = Callable[[str, str, str], None]
"""Takes a picture: its name, the path of the page, and the heading that it begins with; empty: the top."""


def walk(installation: Installation, pause: str, photograph: Photograph) -> Story:
    """Walk through the incident; the breaker stays open for `pause` before it lets probes through."""
    story = Story()
    with duly.Client(installation.address) as client:
        step = _Steps(installation, client, Terminal(installation.address, "anna"), photograph, story)
        step.begin(pause)
        with traffic(installation.address, _GAP, lambda number: [_mail(_WARM_UP + number)]):
            step.break_it()
            step.look()
            step.wait_for_probes()
            step.fix()
        step.redrive()
        step.review()
    return story


@dataclass(frozen=True)
class _Steps:
    installation: Installation
    client: duly.Client
    terminal: Terminal
    photograph: Photograph
    story: Story

    def begin(self, pause: str) -> None:
        """Run the good version, with a breaker."""
        self._deploy("good")
        arguments = ["breakers", "set", LAMBDA, "--failure-rate", "0.5", "--window", "30s"]
        arguments += ["--pause", pause, "--reason", "page the shop team"]
        self._note("breaker", *arguments)
        self.client.schedule_many([_mail(number) for number in range(_WARM_UP)])
        wait_until("the first mails are sent", lambda: not self._live())

    def break_it(self) -> None:
        """Deploy the bad version, and wait until the breaker opens."""
        self._deploy("bad")
        wait_until("the breaker opens", lambda: self._breaker().state is duly.BreakerState.OPEN)
        wait_until("tasks wait behind the breaker", self._held)
        wait_until("there are dead letters", lambda: len([*islice(self._dead(), _DEAD)]) == _DEAD)

    def look(self) -> None:
        """Look, as somebody does who was paged."""
        wait_until("the board shows the breaker", lambda: self._problem(duly.ProblemKind.BREAKER_OPEN))
        self._note("status", "status", code=1)
        self._note("top", "top", "--once")
        self._note("gates", "gates", "list")
        self._note("breakers", "breakers", "list")
        self.photograph("overview", "/", "")
        self.photograph("gates", "/gates", "")
        held = wait_until("a task waits behind the breaker", self._held)
        self.story.held = held.task_id
        self._note("explain-held", "explain", held.task_id)
        self.photograph("held", f"/tasks/{held.task_id}", "")
        self.story.dead = next(self._dead()).task_id
        self._note("dead-letters", "dead-letters", "--lambda", LAMBDA, "--limit", "5")
        self.photograph("dead-letters", f"/dead-letters?lambda={LAMBDA}", "")
        self._note("get-dead", "get", self.story.dead)
        self._note("lambda", "lambdas", "show", LAMBDA)

    def wait_for_probes(self) -> None:
        """Wait until probes have failed, so that the breaker opened again."""
        wait_until("the breaker has tried probes", lambda: "half_open" in self._moves())
        wait_until("the probes have failed", lambda: self._moves().count("open") > 1)

    def fix(self) -> None:
        """Deploy the fixed version, and wait until the breaker closes."""
        self._deploy("fixed")
        wait_until("the breaker closes", lambda: self._breaker().state is duly.BreakerState.CLOSED)
        self._note("breakers-closed", "breakers", "list")

    def redrive(self) -> None:
        """Redrive one dead letter, then all."""
        self._note("redrive-one", "redrive", self.story.dead)
        self._note("wait", "wait", self.story.dead)
        wait_until(
            "the breaker is no problem any more", lambda: not self._problem(duly.ProblemKind.BREAKER_OPEN)
        )
        self._note("status-fixed", "status", code=1)
        letters = self._problem(duly.ProblemKind.DEAD_LETTERS)
        cause = letters.cause.fingerprint if letters and letters.cause else ""
        filters = ["redrive", "--lambda", LAMBDA, "--cause", cause, "--rate", "5/s"]
        self._note("redrive-dry", *filters, "--dry-run")
        self._note("redrive", *filters, "--yes")
        wait_until("nothing waits or runs any more", lambda: not self._live())
        self._note("dead-letters-after", "dead-letters", "--lambda", LAMBDA)
        wait_until("nothing is a problem", lambda: not self.client.problems().problem_count)
        self._note("status-after", "status")

    def review(self) -> None:
        """Read what happened."""
        self._note("explain-dead", "explain", self.story.dead)
        self._note("explain-held-after", "explain", self.story.held)
        self._note("audit", "audit", "--since", "30m")
        self.photograph("timeline", f"/tasks/{self.story.dead}", "Runs")
        self.photograph("audit", "/audit", "")
        self.photograph("overview-after", "/", "")

    def _note(self, name: str, *arguments: str, code: int = 0) -> None:
        self.story.outputs[name] = self.terminal.run(*arguments, code=code)

    def _problem(self, kind: duly.ProblemKind) -> duly.Problem | None:
        return next(iter(self.client.problems(kinds=[kind]).problems), None)

    def _deploy(self, version: str) -> None:
        self.installation.deploy(version)
        self.story.deployed_at[version] = datetime.now().astimezone()

    def _breaker(self) -> duly.Breaker:
        return next(each for each in self.client.breakers() if each.lambda_name == LAMBDA)

    def _moves(self) -> list[str]:
        events = self.client.audit_events(actor="breaker")
        return [str((each.request or {}).get("to")) for each in events]

    def _dead(self) -> Iterator[duly.Task]:
        return iter(self.client.dead_letters(lambda_name=LAMBDA))

    def _held(self) -> duly.Task | None:
        """Return a task that is due, and has never run."""
        waiting = self.client.list(lambda_name=LAMBDA, statuses=[duly.TaskStatus.NEW])
        return next((task for task in waiting if not task.fence), None)

    def _live(self) -> bool:
        live = [status for status in duly.TaskStatus if not status.is_final]
        return any(True for _ in self.client.list(lambda_name=LAMBDA, statuses=live))


def _mail(number: int) -> duly.NewTask:
    return duly.NewTask(LAMBDA, {"to": f"customer{number}@example.org", "subject": "Your order"})
