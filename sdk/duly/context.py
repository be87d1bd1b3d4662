"""What a callback may know about the attempt it is, and tell while it runs."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from duly.callbacks.codec import checkpoint_of, encoding_of_checkpoint, protect, reveal
from duly.callbacks.follow_ups import FollowUps
from duly.callbacks.outcomes import Cancelled
from duly.callbacks.payload import decode, encode
from duly.callbacks.predecessors import Predecessors
from duly.errors import CheckpointTooLargeError, DulyError, EncodingError, EventTimeoutError
from duly.events.waits import Waits, received_before
from duly_wire.completion_tokens import new_completion_token
from duly_wire.enums import AttachmentRole, Priority
from duly_wire.time_conversion import EPOCH, to_datetime, to_timedelta
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from duly.attachments.attachment import Attachment
    from duly.attachments.content import Source
    from duly.attachments.of_attempt import AttachmentServices, AttemptAttachments
    from duly.attachments.origin import Origin
    from duly.callbacks.codec import Codec
    from duly.events.address import EventAddress
    from duly.events.received import ReceivedEvent
    from duly.events.waits import Lookup
    from duly_wire.v1 import frontend_pb2, graphs_pb2, hsc_pb2

    Keep: TypeAlias = Callable[[bytes, bytes], None]

CHECKPOINT_LIMIT_BYTES = 64 * 1024
_WAIT = timedelta(days=7)
_NO_DEFAULT = object()


class TaskContext(FollowUps):
    """One attempt, as its callback sees it. Any thread may use it.

    Example:
        @app.callback("report.build")
        def build(payload: Report, ctx: duly.TaskContext) -> str:
            for done, part in enumerate(payload.parts):
                ctx.raise_if_cancelled()
                add(part, fence=ctx.fence)
                ctx.progress((done + 1) / len(payload.parts), part.name)
    """

    __slots__ = (
        "_cancelled",
        "_interrupted",
        "_keep",
        "_output",
        "_report",
        "_waiter",
        "_waits",
        "attempt",
        "checkpointed",
        "completion",
        "deadline",
        "domain",
        "due_at",
        "fence",
        "graph_id",
        "label",
        "lambda_name",
        "predecessors",
        "priority",
        "started_ns",
        "task_id",
        "tick_at",
    )  # fmt: skip

    def __init__(
        self,
        *,
        task_id: str,
        lambda_name: str,
        priority: Priority,
        attempt: int,
        fence: int,
        due_at: datetime,
        deadline: datetime,
        tick_at: datetime | None = None,
        report: Callable[[float, str], None] | None = None,
        graph_id: str = "",
        label: str = "",
        predecessors: Predecessors | None = None,
    ) -> None:
        """Make a context; callbacks are given theirs. `report` is called with each progress told."""
        self.task_id = task_id
        """UUIDv7 in text form."""
        self.lambda_name = lambda_name
        self.priority = priority
        self.attempt = attempt
        """From 1: failures and crashes so far, plus one."""
        self.fence = fence
        """Greater with each claim of the task: write it next to what the callback writes, and refuse
        a write whose fence is smaller, and no stale process can overwrite a newer one's work."""
        self.due_at = due_at
        """When this attempt was due (aware, UTC); lateness counts from here."""
        self.deadline = deadline
        """When max_runtime ends (aware, UTC): the callback is interrupted then, and the attempt has failed."""
        self.tick_at = tick_at
        """The tick of the time table that scheduled the task (aware, UTC), the same for each attempt; None: none did."""
        self.started_ns = time.time_ns()
        """When this attempt started, on the host's clock; for people, not for decisions."""
        self.graph_id = graph_id
        """The graph that the task is a node of, or empty."""
        self.label = label
        """The node's label in it, or empty."""
        self.predecessors = predecessors if predecessors is not None else Predecessors()
        """The nodes that it waited for, by label: `ctx.predecessors["disks"].result`."""
        self.domain = ""
        """The domain whose workers alone run the task, or empty."""
        self.checkpointed: Any = None
        """What the attempt before kept with `checkpoint`, decoded; None: nothing, or this is the first."""
        self.codec: Codec | None = None
        """Of the application; None: nothing is encrypted."""
        self.children: list[frontend_pb2.NewTask] | None = None
        """What `schedule` was asked for, as it is sent; None: nothing."""
        self.nodes: dict[str, graphs_pb2.GraphNode] | None = None
        """What `add_node` was asked for, by label; None: nothing."""
        self._child_bytes = 0
        self.completion = ""
        """The token that `completion_token` returned; empty: it was not asked for."""
        self._report = report
        self._keep: Keep | None = None
        self._output: Callable[[int, bytes], None] | None = None
        self._services: AttachmentServices | None = None
        self._attachments: AttemptAttachments | None = None
        self._cancelled = False
        self._interrupted = False
        self._waiter: threading.Event | None = None
        self._waits: Waits | None = None

    @classmethod
    def for_task(
        cls,
        task: hsc_pb2.ClaimedTask,
        report: Callable[[float, str], None] | None = None,
        keep: Keep | None = None,
        services: AttachmentServices | None = None,
        output: Callable[[int, bytes], None] | None = None,
    ) -> TaskContext:
        """Make the context of an attempt that starts now; `keep` is called with the task's id and each checkpoint.

        `services` brings the calls for attachments to a Frontend. `output` takes what is added to the output of the task.
        """
        return _OfTask(task, report, keep, services, output)

    def result_of(self, label: str) -> Any:
        """Return the result of a node that this one waited for, decoded; None if it did not succeed.

        Raises KeyError if it waited for no such node, ResultOmittedError if the results were too large to come along.
        """
        return self.predecessors[label].result

    @property
    def cancelled(self) -> bool:
        """True once somebody has asked that the task be cancelled; the callback should stop soon."""
        return self._cancelled

    def wait_cancelled(self, timeout: timedelta | None = None) -> bool:
        """Sleep until cancelled or until `timeout` has passed, and return `cancelled`.

        For sync callbacks: it blocks the thread. An async callback is cancelled as asyncio does it.
        Raises TypeError if `timeout` is not a timedelta.
        """
        if timeout is not None and not isinstance(timeout, timedelta):
            raise TypeError(
                f"timeout must be a timedelta, not {type(timeout).__name__}: timedelta(seconds={timeout!r})"
            )
        with _waiter_lock:
            if self._waiter is None:
                self._waiter = threading.Event()
            if self._cancelled or self._interrupted:
                return self._cancelled
        self._waiter.wait(None if timeout is None else timeout.total_seconds())
        return self._cancelled

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if somebody has asked that the task be cancelled."""
        if self._cancelled:
            raise Cancelled

    def progress(self, fraction: float, note: str = "") -> None:
        """Tell how far the work is, from 0 to 1; sent with the next heartbeat, only the newest counts.

        Raises ValueError if `fraction` is not between 0 and 1.
        """
        if not 0 <= fraction <= 1:  # NaN fails this too
            raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
        if self._report is not None:
            self._report(float(fraction), str(note))

    def checkpoint(self, value: Any) -> None:
        """Keep a value for the next attempt, should this one not succeed; it is `checkpointed` there.

        Anything JSON can carry, at most 64 KiB; only the last counts. Returns at once: the value is stored with the
        next heartbeat, or with the end of the attempt. Raises EncodingError, CheckpointTooLargeError.
        """
        data, encoding = encode(value)
        if encoding != task_pb2.ENCODING_JSON:
            raise EncodingError("a checkpoint is JSON, not bytes: turn them into text first")
        data = data or b"null"
        if self.codec is not None:
            bound_to = checkpoint_of(self.task_id)
            data, _ = protect(self.codec, (data, encoding), bound_to, self.task_id)
        if len(data) > CHECKPOINT_LIMIT_BYTES:
            raise CheckpointTooLargeError(
                f"the checkpoint has {len(data):,} bytes, the limit is {CHECKPOINT_LIMIT_BYTES:,}: store it elsewhere "
                "and keep a reference"
            )
        self._keep_checkpoint(data)

    def completion_token(self) -> str:
        """Return the token by which somebody completes this task, after the callback has returned `duly.CompleteLater()`.

        Give it to whoever does the work: 64 characters, the same each time in one attempt. Whoever has it may complete the task
        (`Client.complete`, `Client.fail`), so keep it out of logs.
        """
        if not self.completion:
            self.completion = new_completion_token(UUID(self.task_id).bytes)
        return self.completion

    def wait_for(
        self,
        key: str,
        *,
        type: Any = Any,  # noqa: A002 (the callback reads as it is meant)
        timeout: timedelta = _WAIT,
        default: Any = _NO_DEFAULT,
    ) -> Any:
        """Return the value of an event that somebody sends to `key`; until then the task waits, and holds no slot.

            decision = ctx.wait_for(f"order-{order}/approval", type=Decision, timeout=timedelta(days=3))

        If no event is there, this ends the attempt, and nothing is charged. When the event comes, the callback runs again from its start,
        and this returns at once. So let what stands before it be safe to repeat. An event counts from when the task was
        scheduled on, and each is received once: a second wait for the key gets the next one. Call it without `await` in async callbacks, too.

        - `type`: what the value is read as, as a payload is. One that does not fit is put aside, and the task goes on waiting for another.
        - `timeout`: 1 s to 365 days. Then it returns `default`, or raises EventTimeoutError, which ends the task unless it is caught.
        """
        try:
            return self._wait((key,), type, timeout, needs_all=False)[0].value
        except EventTimeoutError:
            if default is _NO_DEFAULT:
                raise
            return default

    def wait_for_first(
        self,
        *keys: str,
        type: Any = Any,  # noqa: A002
        timeout: timedelta = _WAIT,
    ) -> ReceivedEvent:
        """Return the first event that somebody sends to one of these keys, 1 to 16: which key it was, its value, and who sent it.

            match ctx.wait_for_first(f"{order}/paid", f"{order}/refused").key: ...

        As `wait_for`.
        """
        return self._wait(keys, type, timeout, needs_all=False)[0]

    def wait_for_all(
        self,
        *keys: str,
        type: Any = Any,  # noqa: A002
        timeout: timedelta = _WAIT,
    ) -> dict[str, Any]:
        """Return the values of events of all these keys, 1 to 16, by key; the callback runs again when the last has come.

            ctx.wait_for_all("order-7/legal", "order-7/finance", type=bool)

        As `wait_for`. The error of a timeout has the missing keys in `keys`.
        """
        return {event.key: event.value for event in self._wait(keys, type, timeout, needs_all=True)}

    def event_address(
        self, key: str, *, title: str = "", expires_in: timedelta | None = None
    ) -> EventAddress:
        """Make an address of one use: its holder sends one event to the key, once, without a login.

            if not ctx.checkpointed:
                send_mail("ann@example.org", ctx.event_address("order-7/approved", title="Ship order 7?").url)
                ctx.checkpoint("mailed")
            if ctx.wait_for("order-7/approved", type=bool): ...

        It can be used at once, before the run ends, and after a retry. Each call makes another; of those of one task and key that are there,
        the first use ends the others. It blocks: in an async callback use `await asyncio.to_thread(ctx.event_address, ...)`.

        - `title`: what is asked, for people. It is in no log, and everybody with the address sees it.
        - `expires_in`: 1 second to 365 days; None: 7 days.

        The `url` of what is returned is empty where `frontend.public_url` is not set. Raises ValueError, InvalidTaskError,
        PermissionDeniedError, QuotaExceededError (the key has 100 addresses that can be used), TaskNotFoundError (the claim is lost),
        UnavailableError.
        """
        from duly.events.callback_addresses import make_address  # few callbacks need it

        if self._services is None:
            raise DulyError("this context has no connection, so no address can be made")
        service = self._services.for_task(UUID(self.task_id).bytes)
        return make_address(service, self.lambda_name, key, title, expires_in)

    def _wait(
        self, keys: tuple[str, ...], kind: object, timeout: timedelta, *, needs_all: bool
    ) -> list[ReceivedEvent]:
        if self._waits is None:
            self._waits = Waits(self._received(), self.lambda_name, self.codec)
        return self._waits.wait(keys, kind, timeout, needs_all=needs_all)

    def waits_look_in(self, received: Lookup) -> None:
        """Let waits find what they received there. For what runs the callback."""
        self._waits = Waits(received, self.lambda_name, self.codec)

    def _received(self) -> Lookup:
        return received_before(())

    def attach(self, source: Source, *, name: str = "", media_type: str = "") -> Attachment:
        """Upload a file, and return what to put into the result: `return {"report": ctx.attach("report.pdf")}`.

        `source`: a path, bytes or a binary file object. It blocks: in an async callback use `await asyncio.to_thread(ctx.attach, ...)`.
        Of one that is in no result, nothing is kept. Raises AttachmentQuotaError, AttachmentsOffError, UnavailableError, OSError,
        ValueError.
        """
        return self.attachments.attach(source, name, media_type)

    def keep(
        self,
        source: Source,
        *,
        name: str = "",
        role: AttachmentRole = AttachmentRole.FILE,
        media_type: str = "",
    ) -> Attachment:
        """Upload a file, such as a log, that stays with the task however this attempt ends, unless its process dies.

        A later attempt replaces what earlier ones kept. At most 100. `role`: FILE, STDOUT or STDERR. Otherwise as `attach`.
        """
        return self.attachments.keep(source, name, role, media_type)

    @property
    def can_attach(self) -> bool:
        """Whether there is a connection for attachments. For what runs the callback."""
        return self._services is not None

    @property
    def kept(self) -> AttemptAttachments | None:
        """What it did with attachments; None: nothing. For what runs the callback."""
        return self._attachments

    def origin(self) -> Origin:
        """Return what reads the attachments of its payload. For what runs the callback."""
        return self.attachments.origin

    def _keep_checkpoint(self, data: bytes) -> None:
        if self._keep is not None:
            self._keep(UUID(self.task_id).bytes, data)

    def _write_output(self, stream: int, data: bytes) -> None:
        if self._output is not None:
            self._output(int(stream), bytes(data))

    def request_cancel(self) -> None:
        """Make `cancelled` true. For what runs the callback; a callback raises Cancelled instead."""
        self._cancelled = True
        self._wake()

    @property
    def interrupted(self) -> bool:
        """True once the callback was interrupted: it ran longer than `max_runtime`, or ignored a cancel."""
        return self._interrupted

    def note_interruption(self) -> None:
        """Make `interrupted` true and end `wait_cancelled`. For what runs the callback."""
        self._interrupted = True
        self._wake()

    def _wake(self) -> None:
        with _waiter_lock:
            waiter = self._waiter
        if waiter is not None:
            waiter.set()


class _OfTask(TaskContext):
    """Reads what the task says when it is first asked for: most callbacks never ask (making one takes a 20th of the time)."""

    __slots__ = ("_task",)

    def __init__(
        self,
        task: hsc_pb2.ClaimedTask,
        report: Callable[[float, str], None] | None,
        keep: Keep | None,
        services: AttachmentServices | None,
        output: Callable[[int, bytes], None] | None,
    ) -> None:
        self._task = task
        self._report = report
        self._keep = keep
        self._services = services
        self._output = output
        self._attachments = None
        self.codec = None
        self.completion = ""
        self.children = None
        self.nodes = None
        self._cancelled = False
        self._interrupted = False
        self._waiter = None
        self._waits = None
        self.started_ns = time.time_ns()

    def _received(self) -> Lookup:
        return received_before(self._task.received)

    def __getattr__(self, name: str) -> object:
        """Called for what is not set yet."""
        if name not in _SAID_BY_THE_TASK:
            raise AttributeError(f"a task's context has no attribute {name!r}", name=name, obj=self)
        task = self._task
        if name == "checkpointed":
            encoding = encoding_of_checkpoint(task.checkpoint)
            bound_to = checkpoint_of(task.claim.task_id)
            self.checkpointed = decode(*reveal(self.codec, task.checkpoint, encoding, bound_to))
            return self.checkpointed
        self.task_id = str(UUID(bytes=task.claim.task_id))
        self.lambda_name, _, queue = getattr(task, "lambda").partition("@")
        self.domain = queue.partition(":")[0].partition("~")[2] if queue else ""
        self.priority = Priority(task.priority or Priority.NORMAL)
        self.attempt = task.attempt
        self.fence = task.fence
        self.due_at = to_datetime(task.due_at)
        started_at = EPOCH + timedelta(microseconds=self.started_ns // 1000)
        self.deadline = started_at + to_timedelta(task.max_runtime)
        self.tick_at = to_datetime(task.tick_at) if task.HasField("tick_at") else None
        self.graph_id = str(UUID(bytes=task.graph.graph_id)) if task.HasField("graph") else ""
        self.label = task.graph.label
        self.predecessors = Predecessors.from_proto(task.graph, self.codec, self.origin)
        return object.__getattribute__(self, name)


_SAID_BY_THE_TASK = frozenset(
    (
        "task_id",
        "lambda_name",
        "priority",
        "attempt",
        "fence",
        "due_at",
        "deadline",
        "checkpointed",
        "tick_at",
        "graph_id",
        "label",
        "predecessors",
        "domain",
    )
)
_waiter_lock = threading.Lock()
"""For all contexts: few callbacks wait for a cancel, and each task would pay for a lock of its own."""


def _renew_lock() -> None:
    global _waiter_lock
    _waiter_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
