"""A graph to be, as the caller writes it: tasks with labels, and what each waits for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from duly.attachments.attachment import AttachmentsInsideError
from duly.callbacks.codec import Codec, payload_of, protect
from duly.callbacks.lambda_of import SessionOptions, name_of
from duly.errors import InvalidTaskError
from duly.events.waits import KEY_LIMIT_BYTES, check_keys, check_timeout
from duly.tasks.arguments import named
from duly.tasks.new_task import NewTask, check_size, new_task
from duly_wire.enums import EdgeCondition
from duly_wire.ids import new_task_id_text
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2, graphs_pb2

if TYPE_CHECKING:
    from duly.attachments.encoded import Encoded


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node of a graph to be: give it, or one of its ends, as `after` of another node."""

    label: str
    # Of its task, once the graph is scheduled; the receipt has those of a graph that was scheduled before.
    task_id: str

    @property
    def succeeded(self) -> Edge:
        """Its success; the node itself means the same."""
        return Edge(self, EdgeCondition.SUCCEEDED)

    @property
    def failed(self) -> Edge:
        """Its failure for good; not a timeout that is final."""
        return Edge(self, EdgeCondition.FAILED)

    @property
    def timed_out(self) -> Edge:
        """Its timeout, if that is final: `on_timeout="fatal"`."""
        return Edge(self, EdgeCondition.TIMED_OUT)

    @property
    def cancelled(self) -> Edge:
        """Its cancel."""
        return Edge(self, EdgeCondition.CANCELLED)

    @property
    def skipped(self) -> Edge:
        """That it ends without a run, because what it waits for can no longer happen."""
        return Edge(self, EdgeCondition.SKIPPED)

    @property
    def finished(self) -> Edge:
        """Its end, whatever it is; a node that is skipped does not count as ended."""
        return Edge(self, EdgeCondition.FINISHED)


@dataclass(frozen=True, slots=True)
class Edge:
    """That a node ends in one of these ways: `node.failed | node.timed_out`."""

    node: NewNode
    condition: EdgeCondition
    or_conditions: tuple[EdgeCondition, ...] = ()

    def __or__(self, other: Edge | NewNode) -> Edge:
        """Return the edge that also fires if the same node ends as `other` says. Raises InvalidTaskError for another node."""
        if isinstance(other, NewNode):
            other = other.succeeded
        if not isinstance(other, Edge):
            return NotImplemented
        if other.node != self.node:
            raise InvalidTaskError(
                f"`|` joins ends of one node, not of {self.node.label!r} and {other.node.label!r}: use duly.any_of(...)",
                "after",
            )
        return Edge(self.node, self.condition, (*self.or_conditions, other.condition, *other.or_conditions))


@dataclass(frozen=True, slots=True)
class AnyOf:
    """That one of several edges fires."""

    edges: tuple[Edge, ...]


_LONGEST_LABEL = 128

After: TypeAlias = "NewNode | Edge | AnyOf | Iterable[NewNode | Edge] | None"
OnTimeout: TypeAlias = Literal["retry", "fatal"]
OnLateEvent: TypeAlias = Literal["fail", "succeed", "skip"]
NeededEvents: TypeAlias = Literal["first", "all"]
WAIT_LAMBDA = "duly.wait"
"""The lambda of nodes that wait for an event; Duly serves it itself."""


def any_of(*after: NewNode | Edge) -> AnyOf:
    """Let a node wait for one of several: it runs as soon as the first of them ends as it should.

    g.task("alarm", after=duly.any_of(check_a.failed, check_b.failed))
    """
    return AnyOf(tuple(_edge(each) for each in after))


class NewGraph:
    """A graph to be: nodes are added, and the whole is scheduled at once.

        with client.graph("discovery") as g:
            ipmi = g.task("ipmi.read", {"node": "n1"})
            disks = g.task("disks.read", {"node": "n1"}, after=ipmi)
            g.task("report.send", after=[ipmi, disks.finished])
            g.task("alarm.raise", after=ipmi.failed)

    Without a client: `NewGraph("discovery")`, for `client.schedule_graph` and `client.put_graph_definition`.
    """

    def __init__(self, name: str, *, graph_id: str | None = None, fail_fast: bool = False) -> None:
        """Begin a graph; `graph_id` is a UUID in text form, best of version 7. None: it gets a new one.

        `fail_fast`: the first failure that the graph does not handle ends it: nodes that have not started are skipped.
        """
        self.name = name
        self.fail_fast = fail_fast
        self.graph_id = graph_id or new_task_id_text()
        """The same id never makes a second graph."""
        self.definition = "", 0
        """Name and version of the definition that it was made of."""
        self._nodes: dict[str, graphs_pb2.GraphNode] = {}
        self._attaching: dict[str, NewTask] = {}
        """By label: tasks whose payloads have attachments, which are encoded when these are stored."""

    @property
    def labels(self) -> list[str]:
        """The labels of its nodes, in their order."""
        return list(self._nodes)

    @property
    def attaching(self) -> Mapping[str, NewTask]:
        """The tasks whose payloads have attachments, by label. For what sends graphs."""
        return self._attaching

    def task(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        *,
        label: str = "",
        after: After = (),
        ignore_failure: bool = False,
        max_runtime: timedelta | None = None,
        on_timeout: OnTimeout = "retry",
        **options: Unpack[SessionOptions],
    ) -> NewNode:
        """Add a task, and return the node that others may wait for.

        - `lambda_name`, `payload`, `priority`, `collection`: as for `schedule`.
        - `label`: its name in the graph; empty: the lambda's name, with a number if there are several.
        - `after`: what it waits for: a node (its success), `node.failed`, `.timed_out`, `.cancelled`, `.skipped`, `.finished`, several
          of one node (`node.failed | node.timed_out`), a list of these of which all must happen, or `duly.any_of(...)`. None and an
          empty list: nothing. If that can no longer happen, it is skipped.
        - `ignore_failure`: if it fails or times out, nodes that wait for its success run all the same.
        - `domain`: only workers of this domain run it, in whatever domain the graph is run.
        - `requires`: labels that a host must have to run it.
        - `max_runtime`: how long an attempt may run, instead of what its lambda says.
        - `on_timeout`: "fatal": an attempt that runs longer is the last, and the node has timed out. "retry": as a failure.
        - `at`, `delay`: not before then, even if nothing is waited for any more; a delay counts from the scheduling of the graph.
        - `expires_at`: if it has not started by then it fails.
        - `resources`: what it takes units of while it runs, as for `schedule`; once its predecessors let it run, it waits for them.
        - `session`: its tasks run one at a time. The node goes to the end of it once what it waits for lets it run.

        `duly.Attachment`s in the payload are uploaded when the graph is scheduled.

        Raises InvalidTaskError, EncodingError, PayloadTooLargeError.
        """
        task = new_task(lambda_name, payload, options)
        edges = edges_of(after)
        try:
            fields, attaching = task.to_fields(), None
        except AttachmentsInsideError:
            fields, attaching = replace(task, payload=None).to_fields(), task
        node = node_of(
            label or self._free_label(name_of(task.lambda_name)),
            fields,
            edges,
            any_of=isinstance(after, AnyOf),
            ignore_failure=ignore_failure,
            max_runtime=max_runtime,
            on_timeout=on_timeout,
        )
        for edge in edges:
            if self._nodes.get(edge.node.label, node).task.task_id != edge.node.task_id:
                raise InvalidTaskError(
                    f"{node.label!r} waits for {edge.node.label!r}, which is not a node of this graph",
                    "after",
                )
        added = self.add(node)
        if attaching is not None:
            self._attaching[node.label] = attaching
        return added

    @named
    def wait(
        self,
        label: str,
        *,
        key: str | Sequence[str] | None = None,
        needs: NeededEvents = "first",
        timeout: timedelta = timedelta(days=7),
        on_timeout: OnLateEvent = "fail",
        after: After = (),
        ignore_failure: bool = False,
        namespace: str = "",
    ) -> NewNode:
        """Add a node that waits for an event and has no callback, and return it. Its result is the event's value.

            approval = g.wait("approval", timeout=timedelta(days=3), after=check)
            g.task("order.ship", order, after=approval)
            ...
            client.send_event(f"{g.graph_id}/approval", True)

        - `label`: its name in the graph.
        - `key`: of the event; None: the graph's id, a slash and the label. Events count from when the graph was scheduled.
          A list: 1 to 16 keys.
        - `needs`: of a list. "first": the result is `{"key": ..., "value": ...}` of the first event. "all": the values by key.
        - `timeout`: from when its predecessors let it wait; 1 s to 365 days.
        - `on_timeout`: "fail": it ends as FATAL_FAILURE of kind EVENT_TIMEOUT. "succeed": with None as its result.
          "skip": it ends as DROPPED, as a node that was skipped: nodes `after=approval.skipped` run, those that need its success are skipped.
        - `after`, `ignore_failure`: as for `task`.
        - `namespace`: of the key; some other node of the graph must be of it.

        With a codec the event's value is encrypted, and so is the result; keys and times are not. Raises InvalidTaskError.
        """
        keys = _keys_of(label, key, needs)
        try:
            check_timeout(timeout)
        except (TypeError, ValueError) as error:
            raise InvalidTaskError(f"{label!r}: {error}", "timeout") from None
        if on_timeout not in ("fail", "succeed", "skip"):
            raise InvalidTaskError(
                f'on_timeout must be "fail", "succeed" or "skip", not {on_timeout!r}', "on_timeout"
            )
        payload: dict[str, Any] = {
            "timeout_seconds": timeout.total_seconds(),
            "on_timeout": on_timeout,
            **keys,
        }
        name = f"{namespace}/{WAIT_LAMBDA}" if namespace else WAIT_LAMBDA
        return self.task(name, payload, label=label, after=after, ignore_failure=ignore_failure)

    def add(self, node: graphs_pb2.GraphNode) -> NewNode:
        """Add a node as it is sent. Raises InvalidTaskError if its label is taken, or if it is no node."""
        if not isinstance(node, graphs_pb2.GraphNode):
            raise InvalidTaskError(
                f"{node!r:.80} is no node as it is sent: use graph.task(NAME, payload)", "node"
            )
        if node.label in self._nodes:
            raise InvalidTaskError(
                f"{node.label!r} is the label of another node: give each a label of its own", "label"
            )
        if not node.task.task_id:
            node.task.task_id = new_task_id_text()
        self._nodes[node.label] = node
        return NewNode(node.label, node.task.task_id)

    def to_proto(
        self, codec: Codec | None = None, payloads: Mapping[str, Encoded] | None = None
    ) -> graphs_pb2.ScheduleGraphRequest:
        """Return the graph as it is sent; `codec` encrypts the payloads.

        `payloads`: by label, those that have attachments, which are stored. Raises AttachmentsInsideError without them.
        """
        definition, version = self.definition
        request = graphs_pb2.ScheduleGraphRequest(
            graph_id=self.graph_id,
            name=self.name,
            nodes=self._nodes.values(),
            definition=definition,
            definition_version=version,
            fail_fast=self.fail_fast,
        )
        payloads = payloads or {}
        self._check_attached(payloads, "client.schedule_graph sends them")
        for node in request.nodes if payloads or codec is not None else ():
            if (encoded := payloads.get(node.label)) is not None:
                node.task.payload, node.task.payload_encoding = encoded.data, encoded.encoding
                node.task.attachments = encoded.serialized_uses()
                check_size(encoded.data)
            _encrypt(node, codec, node.task.task_id)
        return request

    def to_definition(self, codec: Codec | None = None) -> list[graphs_pb2.GraphNode]:
        """Return the nodes as a definition has them: without ids; `codec` encrypts the payloads.

        Raises AttachmentsInsideError for a payload that has attachments: a definition keeps none.
        """
        self._check_attached((), "a definition keeps none")
        nodes = []
        for node in self._nodes.values():
            bare = graphs_pb2.GraphNode()
            bare.CopyFrom(node)
            bare.task.ClearField("task_id")
            _encrypt(bare, codec, f"definition {self.name} {node.label}")
            nodes.append(bare)
        return nodes

    def _check_attached(self, payloads: Container[str], why: str) -> None:
        for label in self._attaching:
            if label not in payloads:
                raise AttachmentsInsideError(f"the payload of {label!r} has attachments: {why}")

    def _free_label(self, name: str) -> str:
        label, number = name, 1
        while label in self._nodes:
            number += 1
            label = f"{name}-{number}"
        return label


def _keys_of(label: str, key: str | Sequence[str] | None, needs: NeededEvents) -> dict[str, Any]:
    """Return what a payload says of the keys of a wait. Raises InvalidTaskError."""
    if needs not in ("first", "all"):
        raise InvalidTaskError(f'{label!r}: needs must be "first" or "all", not {needs!r}', "needs")
    if isinstance(key, list | tuple):
        try:
            check_keys(key)
        except (TypeError, ValueError) as error:
            raise InvalidTaskError(f"{label!r}: {error}", "key") from None
        return {"keys": [*key], "needs": needs}
    if needs != "first":
        raise InvalidTaskError(f'{label!r}: needs="all" goes with a list of keys', "needs")
    if key is None:
        return {}
    if not isinstance(key, str):
        raise InvalidTaskError(
            f"{label!r}: key must be one text, or a list of texts, not {type(key).__name__}", "key"
        )
    if not 1 <= len(key.encode(errors="replace")) <= KEY_LIMIT_BYTES or "\0" in key:
        raise InvalidTaskError(
            f"{label!r}: key must have 1 to {KEY_LIMIT_BYTES} bytes, and no NUL; without key= it is the graph's id/{label}",
            "key",
        )
    return {"key": key}


def node_of(
    label: str,
    task: frontend_pb2.NewTask | dict[str, Any],
    edges: Iterable[Edge],
    *,
    any_of: bool,
    ignore_failure: bool,
    max_runtime: timedelta | None,
    on_timeout: OnTimeout,
) -> graphs_pb2.GraphNode:
    """Return a node as it is sent; `task` may be its fields. Raises InvalidTaskError if an argument is no such thing."""
    check_label(label, "label")
    if on_timeout not in ("retry", "fatal"):
        raise InvalidTaskError(f'on_timeout must be "retry" or "fatal", not {on_timeout!r}', "on_timeout")
    waits_for: list[dict[str, Any]] = []
    for edge in edges:
        check_label(edge.node.label, "after")
        said: dict[str, Any] = {"label": edge.node.label, "condition": edge.condition}
        if edge.or_conditions:
            said["or_conditions"] = edge.or_conditions
        waits_for.append(said)
    node = graphs_pb2.GraphNode(label=label, task=task, waits_for=waits_for)  # type: ignore[arg-type]
    # each argument of a message costs, and most nodes have none of these
    if any_of:
        node.any_of = True
    if ignore_failure:
        node.ignore_failure = ignore_failure
    if on_timeout == "fatal":
        node.timeout_is_final = True
    if max_runtime is not None:
        node.max_runtime.CopyFrom(to_duration(max_runtime))
    return node


def _encrypt(node: graphs_pb2.GraphNode, codec: Codec | None, identity: str) -> None:
    task = node.task
    if is_wait(node):  # the HSC reads what it waits for
        return
    encoded = task.payload, task.payload_encoding
    task.payload, task.payload_encoding = protect(
        codec, encoded, payload_of(getattr(task, "lambda")), identity
    )


def is_wait(node: graphs_pb2.GraphNode) -> bool:
    """Return whether a node waits for an event, and has no callback."""
    name: str = getattr(node.task, "lambda")
    return name.rpartition("/")[2] == WAIT_LAMBDA


def check_label(label: str, field: str) -> None:
    """Check the label of a node. Raises InvalidTaskError."""
    if not 1 <= len(label.encode()) <= _LONGEST_LABEL or "\0" in label:
        raise InvalidTaskError(
            f"the label {label[:64]!r} must be 1 to {_LONGEST_LABEL} bytes without NUL", field
        )


def edges_of(after: After) -> Sequence[Edge]:
    """Return what a node waits for, as edges. Raises InvalidTaskError if it is no such thing."""
    if after is None:
        return ()
    if isinstance(after, NewNode | Edge):
        return (_edge(after),)
    if isinstance(after, AnyOf):
        return after.edges
    try:
        listed = iter(after)
    except TypeError:
        raise _no_predecessor(after) from None
    return [_edge(each) for each in listed]


def _edge(after: object) -> Edge:
    if isinstance(after, NewNode):
        return after.succeeded
    if isinstance(after, Edge):
        return after
    raise _no_predecessor(after)


def _no_predecessor(given: object) -> InvalidTaskError:
    return InvalidTaskError(
        "after must be nodes of the graph, what `task` returned, ends of them such as .failed or .finished, or any_of(...), not "
        f"{type(given).__name__}",
        "after",
    )
