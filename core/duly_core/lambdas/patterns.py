"""Which lambdas a pattern covers: the one rule for grants, gates, lists and SQL.

A pattern is a lambda's name, a prefix that ends with `*`, or `*` alone. The `*` of a prefix stands for no slash: `a.*` is a
pattern of the default namespace, and does not cover `a.team/send`. `*` alone covers all lambdas of all namespaces.
"""

import re
from collections.abc import Iterable

from duly_core.lambdas.names import NAMESPACE_MARK, base_name

EVERYTHING = "*"
"""The pattern of all lambdas. What holds for everybody (settings, grants) needs a grant with it."""


def is_prefix(pattern: str) -> bool:
    """Whether a pattern may cover more than one lambda."""
    return pattern.endswith(EVERYTHING)


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern covers a lambda, or the queue of one of its versions (`NAME@VERSION`)."""
    if is_prefix(pattern):
        return _goes_on(pattern[:-1], name)
    return pattern in (name, base_name(name))


def covers_all_of(pattern: str, narrower: str) -> bool:
    """Whether a pattern covers each lambda that another pattern may cover."""
    if not is_prefix(narrower):
        return covers(pattern, narrower)
    if pattern == EVERYTHING:
        return True
    return is_prefix(pattern) and narrower != EVERYTHING and _goes_on(pattern[:-1], narrower[:-1])


def shared(pattern: str, other: str) -> str | None:
    """Return the pattern of what two patterns both cover; None: nothing.

    >>> shared("mail.*", "mail.send"), shared("*", "mail.*"), shared("mail.*", "report.*")
    ('mail.send', 'mail.*', None)
    """
    if covers_all_of(pattern, other):
        return other
    return pattern if covers_all_of(other, pattern) else None


def pattern_of_namespace(namespace: str) -> str:
    """Return the narrowest pattern that covers all lambdas of a namespace; that of the default one (empty) is `*`."""
    return f"{namespace}{NAMESPACE_MARK}{EVERYTHING}" if namespace else EVERYTHING


def to_regex(patterns: Iterable[str]) -> str:
    """Return a regular expression, in the syntax of Postgres and of Python, for the names that any of these patterns covers."""
    return f"^(?:{'|'.join(map(_alternative, patterns))})$"


def _goes_on(prefix: str, text: str) -> bool:
    """Whether a text goes on from a prefix within one namespace."""
    return text.startswith(prefix) and (not prefix or NAMESPACE_MARK not in text[len(prefix) :])


def _alternative(pattern: str) -> str:
    if pattern == EVERYTHING:
        return ".*"
    if is_prefix(pattern):
        return f"{re.escape(pattern[:-1])}[^{NAMESPACE_MARK}]*"
    return f"{re.escape(pattern)}(?:@.*)?"
