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
        Link("/settings", "Settings", everywhere=True),
        Link("/audit", "Audit", "AUDIT", everywhere=True),
    )),
)  # fmt: skip
