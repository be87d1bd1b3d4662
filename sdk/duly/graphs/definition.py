"""Definitions of graphs: read from JSON as RackHD writes it, and run with other payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duly.callbacks.codec import Codec, payload_of, reveal
from duly.callbacks.payload import decode, encode
from duly.errors import InvalidTaskError
from duly.graphs.new_graph import NewGraph, is_wait
from duly.transport.message_fields import view
from duly_wire.enums import EdgeCondition
from duly_wire.queue_names import in_domain
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import graphs_pb2, task_pb2

if TYPE_CHECKING:
    from datetime import datetime

Options = Mapping[str, Mapping[str, Any]]
"""Payload fields by label; those of '*' (or 'defaults') are for all nodes."""

_FOR_ALL = ("defaults", "*")
_TIMEOUT = "_taskTimeout"
_OVERRIDES = "schedulerOverrides"
_LONGEST_TIMEOUT = timedelta(days=365)
_OF_GRAPH = {"friendlyName", "injectableName", "name", "options", "tasks"}
_OF_TASK = {
    "label", "taskName", "lambda", "waitOn", "anyOf", "ignoreFailure", "options", "optionOverrides", "taskDefinition",
}  # fmt: skip
_OF_INLINE = {"friendlyName", "injectableName", "implementsTask", "options"}
_SAYS_NOTHING = {"properties", "requiredOptions", "requiredProperties"}
"""Of an inline task, if they are empty."""
_CONDITIONS = {"timeout": EdgeCondition.TIMED_OUT} | {each.name.lower(): each for each in EdgeCondition}
"""By RackHD's word, and by ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDefinition:
    """A version of a stored definition."""

    name: str
    version: int
    created_at: datetime
    # The labels of its nodes; from `get_graph_definition` only.
    labels: tuple[str, ...]

    @classmethod
    def from_proto(cls, definition: graphs_pb2.GraphDefinition) -> GraphDefinition:
        """Return the view of a definition as it came over the wire."""
        return view(cls, definition, labels=tuple(node.label for node in definition.nodes))


def graph_from_json(definition: Mapping[str, Any]) -> NewGraph:
    """Return the graph that RackHD's JSON describes.

    `{"injectableName": NAME, "options": {"defaults": {...}, LABEL: {...}}, "tasks": [{"label", "taskName",
    "waitOn": {LABEL: CONDITION | [CONDITION, ...]}, "anyOf", "ignoreFailure", "options"}]}`. A condition is succeeded, failed, timeout,
    cancelled, skipped or finished. A task's lambda is its taskName in lower case, its payload is its options, and `_taskTimeout` among
    them is its max_runtime in milliseconds. As in RackHD, that timeout is final, and the first failure that no task waits for ends the
    graph.

    Raises InvalidTaskError, which names the task at fault, and what of it Duly has not.
    """
    _check_names(definition, _OF_GRAPH, "the graph")
    name = definition.get("injectableName") or definition.get("name") or definition.get("friendlyName")
    if not isinstance(name, str) or not name:
        raise InvalidTaskError("injectableName: the graph needs a name", "injectableName")
    options = definition.get("options") or {}
    graph = NewGraph(name, fail_fast=True)
    for task in definition.get("tasks") or ():
        if not isinstance(task, Mapping) or not isinstance(task.get("label"), str):
            raise InvalidTaskError("tasks: each must be an object with a label", "tasks")
        _add(graph, task, options)
    check_options(options, graph.labels)
    return graph


def run_of(
    definition: graphs_pb2.GraphDefinition,
    options: Options,
    name: str = "",
    codec: Codec | None = None,
    domain: str = "",
) -> NewGraph:
    """Return a new graph of a definition, with payloads changed as `options` say, whose nodes run in `domain`.

    Raises InvalidTaskError for a label that no node has, and for a payload that is no JSON object;
    DecryptionError for one that is to be changed, and that `codec` cannot decrypt.
    """
    graph = NewGraph(name or definition.name, fail_fast=definition.fail_fast)
    graph.definition = definition.name, definition.version
    check_options(options, [node.label for node in definition.nodes])
    for stored in definition.nodes:
        node = graphs_pb2.GraphNode()
        node.CopyFrom(stored)
        waits = is_wait(node)  # its payload says what it waits for: options for all nodes are not meant
        changes = options.get(node.label) if waits else _merged(options, node.label)
        if changes:
            payload = _object(node, codec)
            _write(node, payload | dict(changes))
        if not waits:
            setattr(node.task, "lambda", in_domain(getattr(node.task, "lambda"), domain))
        graph.add(node)
    return graph


def check_options(options: Options, labels: list[str]) -> None:
    """Raise InvalidTaskError for options of an unknown label."""
    for label, values in options.items():
        if label not in labels and label not in _FOR_ALL:
            raise InvalidTaskError(
                f"options: no node has the label {label!r}; '*' is for all nodes", "options"
            )
        if not isinstance(values, Mapping):
            raise InvalidTaskError(f"options: those of {label!r} must be an object", "options")


def _add(graph: NewGraph, task: Mapping[str, Any], options: Options) -> None:
    label = task["label"]
    _check_names(task, _OF_TASK, repr(label))
    inline = task.get("taskDefinition") or {}
    _check_inline(inline, label)
    lambda_name = task.get("lambda") or task.get("taskName") or inline.get("injectableName")
    if not isinstance(lambda_name, str):
        raise InvalidTaskError(f"{label!r}: taskName must name a lambda", "taskName")
    node = graphs_pb2.GraphNode(
        label=label,
        ignore_failure=bool(task.get("ignoreFailure")),
    )
    setattr(node.task, "lambda", lambda_name.lower())
    waits = task.get("waitOn") or {}
    if isinstance(waits, Mapping) and set(waits) == {"anyOf"} and isinstance(waits["anyOf"], Mapping):
        waits, node.any_of = waits["anyOf"], True
    node.any_of = node.any_of or bool(task.get("anyOf"))
    if not isinstance(waits, Mapping):
        raise InvalidTaskError(f"{label!r}: waitOn must be an object of labels and conditions", "waitOn")
    for source, condition in waits.items():
        first, *others = _conditions(label, condition)
        node.waits_for.add(label=source, condition=first, or_conditions=others)
    own = {**(task.get("optionOverrides") or {}), **(task.get("options") or {})}
    payload = {**(inline.get("options") or {}), **_merged(options, label, own)}
    _write(node, payload)
    graph.add(node)


def _merged(options: Options, label: str, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in _FOR_ALL:
        merged |= options.get(name) or {}
    return merged | dict(own or {}) | dict(options.get(label) or {})


def _write(node: graphs_pb2.GraphNode, payload: dict[str, Any]) -> None:
    payload = dict(payload)
    if (overrides := payload.pop(_OVERRIDES, None)) is not None:
        if not isinstance(overrides, Mapping) or set(overrides) - {"timeout"}:
            raise InvalidTaskError(f"{node.label!r}: of {_OVERRIDES} only timeout is known", _OVERRIDES)
        payload = {_TIMEOUT: overrides.get("timeout"), **payload}
    if (milliseconds := payload.pop(_TIMEOUT, None)) is not None:
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
            raise InvalidTaskError(f"{node.label!r}: {_TIMEOUT} must be milliseconds", _TIMEOUT)
        # NaN compares as false, and an int of any size can be compared
        if not float("-inf") < milliseconds <= _LONGEST_TIMEOUT / timedelta(milliseconds=1):
            raise InvalidTaskError(
                f"{node.label!r}: {_TIMEOUT} must be at most {_LONGEST_TIMEOUT.days} days, in milliseconds",
                _TIMEOUT,
            )
        node.ClearField("max_runtime")
        node.timeout_is_final = milliseconds > 0
        if milliseconds > 0:  # 0 and -1: as its lambda says
            node.max_runtime.CopyFrom(to_duration(timedelta(milliseconds=milliseconds)))
    node.task.payload, node.task.payload_encoding = encode(payload)


def _object(node: graphs_pb2.GraphNode, codec: Codec | None) -> dict[str, Any]:
    payload = None
    bound_to = payload_of(getattr(node.task, "lambda"))
    data, encoding = reveal(codec, node.task.payload, node.task.payload_encoding, bound_to)
    if encoding != task_pb2.ENCODING_RAW:
        payload = decode(data, encoding) if data else {}
    if not isinstance(payload, dict):
        raise InvalidTaskError(
            f"options: the payload of {node.label!r} is no JSON object, so no fields of it can be set",
            "options",
        )
    return payload


def _conditions(label: str, said: object) -> list[graphs_pb2.EdgeCondition.ValueType]:
    """Return what one condition, or a list of them of which each is enough, says."""
    texts = said if isinstance(said, list) else [said]
    if not texts:
        raise InvalidTaskError(f"{label!r}: waitOn: a list of conditions is empty", "waitOn")
    conditions = []
    for text in texts:
        condition = _CONDITIONS.get(text.lower()) if isinstance(text, str) else None
        if condition is None:
            raise InvalidTaskError(
                f"{label!r}: waitOn: {text!r} is no condition: use {', '.join(_CONDITIONS)}", "waitOn"
            )
        conditions.append(graphs_pb2.EdgeCondition.ValueType(condition))
    return conditions


def _check_inline(inline: object, label: str) -> None:
    """Refuse what an inline task says and a node cannot."""
    if not isinstance(inline, Mapping):
        raise InvalidTaskError(f"{label!r}: taskDefinition must be an object", "taskDefinition")
    said = {name: value for name, value in inline.items() if value or name not in _SAYS_NOTHING}
    _check_names(said, _OF_INLINE, f"{label!r}: taskDefinition")


def _check_names(given: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(given) - known):
        raise InvalidTaskError(
            f"{where}: {unknown[0]!r} is unknown here: use {', '.join(sorted(known))}", unknown[0]
        )
