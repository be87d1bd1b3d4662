"""Which queue a task goes through: one per (lambda, priority)."""

import re
from typing import NamedTuple

from duly_wire.enums import Priority
from duly_wire.queue_names import DOMAIN, LABEL, MOST_REQUIRED, NO_DOMAIN, PINNED_VERSION

NAMESPACE_MARK = "/"
"""Ends the namespace in the name of a lambda."""
DEFAULT_NAMESPACE = "default"
"""How people and quotas call the namespace of lambdas without one. No lambda may write it: `default/x` is no name."""
ALL_PRIORITIES = frozenset(Priority)
PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
"""Of a collection or resource."""
LAMBDA_NAME = re.compile(
    rf"(?!{DEFAULT_NAMESPACE}/)(?=[a-z0-9_./-]{{1,128}}(?![a-z0-9_./-]))(?:[a-z0-9][a-z0-9_.-]*/)?[a-z0-9][a-z0-9_.-]*"
)
"""With its namespace before a slash, if it has one."""
QUEUE_NAME = re.compile(
    rf"{LAMBDA_NAME.pattern}(@(?!\Z)({PINNED_VERSION.pattern})?(~(?!{NO_DOMAIN}(:|\Z)){DOMAIN.pattern})?"
    rf"(:{LABEL.pattern}(,{LABEL.pattern}){{0,{MOST_REQUIRED - 1}}})?)?"
)
"""What hosts ask for: a lambda, or the queue of one of its versions, of a domain, or of required labels."""


def base_name(name: str) -> str:
    """Return the lambda of a queue; that of a queue of a version, of a domain or of labels, too."""
    return name.partition("@")[0]


def namespace_of(lambda_name: str) -> str:
    """Return the namespace of a lambda; empty: the default one."""
    return lambda_name.rpartition(NAMESPACE_MARK)[0]


class QueueKey(NamedTuple):
    """The name of a queue, free of any backend's rules for names."""

    lambda_name: str
    priority: Priority

    def __str__(self) -> str:
        return f"{self.lambda_name}/{self.priority.name.lower()}"
