"""Nodes of graphs that wait for an event and have no callback: tasks of a lambda that the HSC serves itself. Pure data."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from duly_core.events.rules import KEY_LIMIT, LONGEST_WAIT, SHORTEST_WAIT
from duly_core.lambdas.names import base_name
from duly_core.lambdas.policy import LambdaPolicy

WAIT_LAMBDA = "duly.wait"
"""The lambda of these nodes, behind the namespace. No worker may declare it."""
WAIT_NAME = "node"
"""What such a node calls its wait: it has one."""
OWNER = "duly"
_KEY, _TIMEOUT, _ON_TIMEOUT = "key", "timeout_seconds", "on_timeout"
_ON_TIMEOUTS = ("fail", "succeed")


class WaitNode(NamedTuple):
    """What a node waits for."""

    key: str
    """Empty: the id of the graph, a slash and the node's label."""
    timeout: timedelta
    succeeds_late: bool
    """It succeeds with null if no event comes in time; otherwise it fails."""


def is_wait_lambda(name: str) -> bool:
    """Tell whether a lambda, or a queue, is that of nodes that wait."""
    return base_name(name).rpartition("/")[2] == WAIT_LAMBDA


def wait_policy(name: str) -> LambdaPolicy:
    """Return the policy of a lambda of nodes that wait. A server that dies while it begins a wait must not end the node soon."""
    return LambdaPolicy(
        name, owner=OWNER, max_crashes=100, max_runtime=timedelta(minutes=1), payload_limit=4096
    )


def read_wait_node(payload: bytes) -> WaitNode:
    """Read the payload of such a node.

    Raises:
        ValueError: what is wrong with it.
    """
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        message = "must be JSON, and not encrypted: what a node waits for is read by the server"
        raise ValueError(message) from None
    if not isinstance(said, dict):
        raise ValueError("must be a JSON object")  # noqa: TRY004 (the payload is at fault, not a caller)
    if unknown := sorted(set(said) - {_KEY, _TIMEOUT, _ON_TIMEOUT}):
        raise ValueError(f"has {unknown[0][:64]!r}, which is unknown: use {_KEY}, {_TIMEOUT}, {_ON_TIMEOUT}")
    key = said.get(_KEY, "")
    if not isinstance(key, str) or "\0" in key or not _fits(key):
        raise ValueError(f"{_KEY} must be a text of at most {KEY_LIMIT} bytes without NUL")
    on_timeout = said.get(_ON_TIMEOUT, _ON_TIMEOUTS[0])
    if on_timeout not in _ON_TIMEOUTS:
        raise ValueError(f"{_ON_TIMEOUT} must be one of {', '.join(_ON_TIMEOUTS)}")
    return WaitNode(key, _timeout(said.get(_TIMEOUT)), on_timeout == "succeed")


def received_by(received: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any] | None:
    """Return what ended the wait: the event, or that its time is over. None: the node has not waited yet."""
    return next((each for each in received or () if each["wait"] == WAIT_NAME), None)


def _fits(key: str) -> bool:
    try:
        return len(key.encode()) <= KEY_LIMIT
    except UnicodeEncodeError:  # half of a pair
        return False


def _timeout(seconds: object) -> timedelta:
    least, most = SHORTEST_WAIT.total_seconds(), LONGEST_WAIT.total_seconds()
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not least <= seconds <= most:  # type: ignore[operator]  # NaN compares as false
        raise ValueError(f"{_TIMEOUT} must be a number from {least:.0f} to {most:,.0f}")
    return timedelta(seconds=seconds)  # type: ignore[arg-type]
