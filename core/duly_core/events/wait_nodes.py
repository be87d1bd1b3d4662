"""Nodes of graphs that wait for an event and have no callback: tasks of a lambda that the HSC serves itself. Pure data."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from duly_core.events.rules import KEY_LIMIT, LONGEST_WAIT, MOST_KEYS, SHORTEST_WAIT
from duly_core.lambdas.names import base_name
from duly_core.lambdas.policy import LambdaPolicy

WAIT_LAMBDA = "duly.wait"
"""The lambda of these nodes, behind the namespace. No worker may declare it."""
WAIT_NAME = "node"
"""What such a node calls its wait: it has one."""
OWNER = "duly"
_KEY, _KEYS, _NEEDS, _TIMEOUT, _ON_TIMEOUT = "key", "keys", "needs", "timeout_seconds", "on_timeout"
_FIELDS = (_KEY, _KEYS, _NEEDS, _TIMEOUT, _ON_TIMEOUT)
_NEEDED = ("first", "all")
_ON_TIMEOUTS = ("fail", "succeed", "skip")


class WaitNode(NamedTuple):
    """What a node waits for."""

    keys: tuple[str, ...]
    """Empty: one, the id of the graph, a slash and the node's label."""
    needs: str
    """Of several keys: "first" or "all". Empty: it has one, and its result is the value of that."""
    timeout: timedelta
    on_timeout: str
    """What it does if no event comes in time: "fail", "succeed" with null, or "skip"."""


def is_wait_lambda(name: str) -> bool:
    """Tell whether a lambda, or a queue, is that of nodes that wait."""
    return base_name(name).rpartition("/")[2] == WAIT_LAMBDA


def wait_policy(name: str) -> LambdaPolicy:
    """Return the policy of a lambda of nodes that wait. A server that dies while it begins a wait must not end the node soon."""
    return LambdaPolicy(
        name, owner=OWNER, max_crashes=100, max_runtime=timedelta(minutes=1), payload_limit=16 * 1024
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
    if unknown := sorted(set(said) - {*_FIELDS}):
        raise ValueError(f"has {unknown[0][:64]!r}, which is unknown: use {', '.join(_FIELDS)}")
    on_timeout = said.get(_ON_TIMEOUT, _ON_TIMEOUTS[0])
    if on_timeout not in _ON_TIMEOUTS:
        raise ValueError(f"{_ON_TIMEOUT} must be one of {', '.join(_ON_TIMEOUTS)}")
    return WaitNode(*_keys(said), _timeout(said.get(_TIMEOUT)), on_timeout)


def _keys(said: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the keys, and how many of them are needed; empty: there are not several."""
    if _KEYS not in said:
        key = said.get(_KEY, "")
        if _NEEDS in said:
            raise ValueError(f"{_NEEDS} goes with {_KEYS}, a list")
        if not isinstance(key, str) or not _fits(key):
            raise ValueError(f"{_KEY} must be a text of at most {KEY_LIMIT} bytes without NUL")
        return (key,) if key else (), ""
    keys, needs = said[_KEYS], said.get(_NEEDS, _NEEDED[0])
    if _KEY in said:
        raise ValueError(f"has both {_KEY} and {_KEYS}: use one of them")
    if needs not in _NEEDED:
        raise ValueError(f"{_NEEDS} must be one of {', '.join(_NEEDED)}")
    if not isinstance(keys, list) or not all(isinstance(key, str) and key and _fits(key) for key in keys):
        raise ValueError(f"{_KEYS} must be a list of texts of 1 to {KEY_LIMIT} bytes without NUL")
    if not 1 <= len(keys) <= MOST_KEYS or len(set(keys)) < len(keys):
        raise ValueError(f"{_KEYS} must have 1 to {MOST_KEYS} keys, each once")
    return tuple(keys), needs


def received_by(received: Sequence[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    """Return what came of the wait so far: events, and that its time is over. Empty: nothing, or the node has not waited yet."""
    return [each for each in received or () if each["wait"] == WAIT_NAME]


def _fits(key: str) -> bool:
    try:
        return "\0" not in key and len(key.encode()) <= KEY_LIMIT
    except UnicodeEncodeError:  # half of a pair
        return False


def _timeout(seconds: object) -> timedelta:
    least, most = SHORTEST_WAIT.total_seconds(), LONGEST_WAIT.total_seconds()
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not least <= seconds <= most:  # type: ignore[operator]  # NaN compares as false
        raise ValueError(f"{_TIMEOUT} must be a number from {least:.0f} to {most:,.0f}")
    return timedelta(seconds=seconds)  # type: ignore[arg-type]
