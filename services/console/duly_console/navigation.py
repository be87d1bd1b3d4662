"""The pages that every page links to, in groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the menu."""

    path: str
    title: str
    action: str = "READ"
    """What a person must be allowed to do, for some lambda, to see anything there."""
    everywhere: bool = False
    """Whether it must be allowed for all lambdas."""
    or_namespace: bool = False
    """Whether it is enough if it is allowed for all lambdas of a namespace."""


SECTIONS = (
    ("", (Link("/", "Overview"),)),
    ("Work", (
        Link("/tasks", "Tasks"),
        Link("/dead-letters", "Dead letters"),
        Link("/lambdas", "Lambdas"),
        Link("/queues", "Queues"),
        Link("/sessions", "Sessions", everywhere=True, or_namespace=True),
        Link("/graphs", "Graphs"),
        Link("/time-tables", "Time tables"),
    )),
    ("Operation", (
        Link("/hosts", "Hosts"),
        Link("/pools", "Pools", everywhere=True),
        Link("/gates", "Gates"),
        Link("/resources", "Resources"),
        Link("/slo", "Promises"),
        Link("/notifications", "Notifications", everywhere=True),
        Link("/settings", "Settings", everywhere=True),
        Link("/audit", "Audit", "AUDIT", everywhere=True),
    )),
)  # fmt: skip

COMMANDS = (
    Link("/gates#g-lambda", "Set a gate: pause, delay or drop tasks", "OPERATE", everywhere=True),
    Link("/lambdas", "Pause or resume a lambda", "OPERATE"),
    Link("/dead-letters", "Redrive dead letters", "REDRIVE"),
    Link("/sessions?blocked=1", "Unblock a session", "REDRIVE", everywhere=True, or_namespace=True),
    Link("/resources", "Change the capacity of a resource", "OPERATE", everywhere=True),
    Link("/settings", "Change a setting", "OPERATE", everywhere=True),
    Link("/tasks?status=live", "Tasks that have not ended", "READ"),
    Link("/tasks?status=processing", "Tasks that run", "READ"),
    Link("/queues?order=age", "Queues with the longest wait", "READ"),
)
"""What the command palette offers besides the pages: lists with a filter, and forms. It changes nothing itself."""
