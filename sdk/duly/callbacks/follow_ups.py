"""What a callback schedules to be written with its success."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Unpack

from duly.attachments.attachment import AttachmentsInsideError
from duly.callbacks import tracing
from duly.callbacks.lambda_of import name_of
from duly.errors import InvalidTaskError
from duly.tasks.new_task import ScheduledTask, child_task, new_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from duly.attachments.of_attempt import AttachmentServices, AttemptAttachments
    from duly.callbacks.codec import Codec
    from duly.callbacks.lambda_of import ChildOptions, SessionOptions
    from duly.graphs.new_graph import After, NewNode, OnTimeout
    from duly.tasks.new_task import NewTask
    from duly_wire.v1 import frontend_pb2, graphs_pb2

_MOST_CHILDREN = 1_000
_MOST_CHILD_BYTES = 4 * 1024 * 1024
_MOST_EDGES = 10_000


class FollowUps:
    """The part of a task's context that schedules tasks, and adds nodes to its graph. Any thread may use it."""

    __slots__ = ("_attachments", "_child_bytes", "_services", "children", "codec", "nodes")

    codec: Codec | None
    task_id: str
    lambda_name: str
    graph_id: str
    domain: str
    _attachments: AttemptAttachments | None
    _services: AttachmentServices | None
    children: list[frontend_pb2.NewTask] | None
    nodes: dict[str, graphs_pb2.GraphNode] | None
    _child_bytes: int

    def schedule(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        **options: Unpack[ChildOptions],
    ) -> ScheduledTask:
        """Schedule a task that is written if this attempt succeeds, in the same transaction; otherwise it never is.

        Arguments as for `Client.schedule`; `delay` counts from the success. Returns at once, with the id that the task
        will have; only attachments in its payload that are not stored yet are uploaded first. At most 1,000 tasks and 4 MiB in one attempt. A lambda that is not registered, a resource
        that is not declared, or a payload larger than the lambda takes makes the attempt a fatal failure. With `session`, the task goes to
        the end of that session when the attempt succeeds. With `unique`, whose key is judged then, no task has the id if the key is taken; with
        REJECT the attempt is a fatal failure. A task cannot replace another here, nor be debounced. Raises InvalidTaskError, EncodingError, PayloadTooLargeError.
        """
        new = self._sent(child_task(lambda_name, payload, options))
        with _lock:
            children = self._children()
            self._count(new.ByteSize())
            children.append(new)
        if tracing.active is not None:
            tracing.active.scheduled(getattr(new, "lambda"), new.task_id, time.time_ns())
        return ScheduledTask(new.task_id, created=True)

    def node(self, label: str) -> NewNode:
        """Return a node of the own graph, for `after` of `add_node`; `ctx.node(ctx.label)` is this one.

        Raises InvalidTaskError if no node can have that label.
        """
        from duly.graphs.new_graph import NewNode, check_label

        check_label(label, "label")
        return NewNode(label, "")

    def add_node(
        self,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        *,
        label: str,
        after: After = (),
        ignore_failure: bool = False,
        max_runtime: timedelta | None = None,
        on_timeout: OnTimeout = "retry",
        **options: Unpack[SessionOptions],
    ) -> NewNode:
        """Add a node to the own graph, if this attempt succeeds, in the same transaction; otherwise it never is.

            for disk in disks:
                ctx.add_node("disk.check", {"disk": disk}, label=f"check-{disk}", after=ctx.node("power.on"))

        Arguments as for `task` of a graph. `after` takes nodes that were added before, and those of `ctx.node(label)`; one that has
        ended already counts as it ended. Without `after` it is due at once. Nothing that is in the graph waits for it: the graph
        is not finished before it is. It counts as a task of `schedule`. All nodes of one attempt wait for at most 10,000 nodes together.

        An unknown label, one that the graph has already, or a graph of more than 10,000 nodes makes the attempt a fatal failure.
        With `session`, it enters the session once what it waits for lets it run.
        It runs in the domain of this task, unless `domain` names another; "default" is none.
        A graph that was cancelled, or failed fast, stays as it is. Raises InvalidTaskError, EncodingError, PayloadTooLargeError.
        """
        if not self.graph_id:
            raise InvalidTaskError("this task is not a node of a graph: use ctx.schedule", "label")
        from duly.graphs.new_graph import AnyOf, NewNode, edges_of, node_of

        if self.domain:
            options = {"domain": self.domain, **options}
        task = self._sent(new_task(lambda_name, payload, options))
        node = node_of(
            label,
            task,
            edges_of(after),
            any_of=isinstance(after, AnyOf),
            ignore_failure=ignore_failure,
            max_runtime=max_runtime,
            on_timeout=on_timeout,
        )
        with _lock:
            self._children()
            if self.nodes is None:
                self.nodes = {}
            if label in self.nodes:
                raise InvalidTaskError(
                    f"{label!r} was added before: give each node a label of its own", "label"
                )
            edges = sum(len(each.waits_for) for each in self.nodes.values()) + len(node.waits_for)
            if edges > _MOST_EDGES:
                raise InvalidTaskError(
                    f"the nodes of an attempt may wait for {_MOST_EDGES:,} nodes together: put a node between",
                    "after",
                )
            self._count(node.ByteSize())
            self.nodes[label] = node
        return NewNode(label, task.task_id)

    @property
    def attachments(self) -> AttemptAttachments:
        """For what runs the callback."""
        if self._attachments is None:
            from duly.attachments.of_attempt import AttemptAttachments

            self._attachments = AttemptAttachments(self._services, self.task_id, self.lambda_name, self.codec)
        return self._attachments

    def _sent(self, new: NewTask) -> frontend_pb2.NewTask:
        """Return a task as it is sent, having stored the attachments of its payload."""
        from duly_wire.v1 import frontend_pb2

        try:
            return new.to_proto(self.codec)
        except AttachmentsInsideError:
            encoded = self.attachments.encode_input(new.payload, name_of(new.lambda_name))
        return frontend_pb2.NewTask(**new.to_fields(self.codec, encoded))

    def _children(self) -> list[frontend_pb2.NewTask]:
        if self.children is None:
            self.children, self._child_bytes = [], 0
        return self.children

    def _count(self, size: int) -> None:
        """Count a task that is written with the success, unless there are too many."""
        count = len(self._children()) + len(self.nodes or ())
        if count == _MOST_CHILDREN or self._child_bytes + size > _MOST_CHILD_BYTES:
            raise InvalidTaskError(
                f"an attempt may schedule {_MOST_CHILDREN:,} tasks of {_MOST_CHILD_BYTES:,} bytes together: have "
                "one of them schedule the rest"
            )
        self._child_bytes += size


def _renew_lock() -> None:
    """In a forked child: the lock may have been held by a thread that is not there."""
    global _lock
    _lock = threading.Lock()


_lock = threading.Lock()
os.register_at_fork(after_in_child=_renew_lock)
