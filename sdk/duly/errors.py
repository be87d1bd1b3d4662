"""Every error the SDK raises on purpose; each docstring says what it means. Free of gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly_wire import missing_cells
from duly_wire.connection_errors import CredentialsError, DulyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly.graphs.graph import Graph
    from duly.tasks.new_task import ScheduledTask
    from duly.tasks.task import Task
    from duly_wire.enums import TaskStatus

__all__ = [
    "AddressError",
    "AppImportError",
    "AttachmentChangedError",
    "AttachmentCorruptError",
    "AttachmentMissingError",
    "AttachmentQuotaError",
    "AttachmentsOffError",
    "CalendarConflictError",
    "CalendarInUseError",
    "CalendarNotFoundError",
    "CheckpointTooLargeError",
    "ClosedError",
    "CredentialsError",
    "DecryptionError",
    "DulyError",
    "EncodingError",
    "EventTimeoutError",
    "GraphNotFoundError",
    "GraphWaitTimeoutError",
    "InvalidSettingError",
    "InvalidTaskError",
    "KeyConflictError",
    "LambdaConflictError",
    "LambdaInUseError",
    "NotADeadLetterError",
    "NotPendingError",
    "PartialAnswerWarning",
    "PayloadError",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "PoolConflictError",
    "QuotaExceededError",
    "RegistrationError",
    "RequestError",
    "ResourceConflictError",
    "ResourceInUseError",
    "ResultOmittedError",
    "ScheduleManyError",
    "SessionNotBlockedError",
    "SignatureError",
    "TaskFailedError",
    "TaskFinalError",
    "TaskNotFoundError",
    "TimeTableConflictError",
    "TimeTableNotFoundError",
    "TokenNotCurrentError",
    "TokenTooEarlyError",
    "UnauthenticatedError",
    "UnavailableError",
    "UniqueKeyTakenError",
    "UnknownCellError",
    "UnknownGateError",
    "UnknownLambdaError",
    "UnknownObjectiveError",
    "UnknownPoolError",
    "UnknownResourceError",
    "UnknownSettingError",
    "WaitTimeoutError",
    "WatchLostError",
]


class EncodingError(DulyError, TypeError):
    """A payload or result cannot be sent as JSON; the message names the type at fault."""


class EventTimeoutError(DulyError, TimeoutError):
    """An event did not come in time (`ctx.wait_for`). If a callback does not catch it, the task has failed for good: EVENT_TIMEOUT."""

    keys: tuple[str, ...] = ()
    """Those of which no event came."""


class RegistrationError(DulyError):
    """A callback is declared in a way that cannot work. Raised at import, before any task runs."""


class AppImportError(DulyError):
    """The application named by "module:attribute" cannot be imported; the message says how to fix it."""


class PartialAnswerWarning(UserWarning):
    """An answer lacks cells that do not answer: a list, a count or a search of an installation of several cells.

    Or a change of what all cells have, such as a setting or a gate on `*`, is written to the cells that answer, and the others get it when they
    are back (`is_late`). What the answer has is right. `warnings.simplefilter("error", duly.PartialAnswerWarning)` makes it an error.
    """

    def __init__(self, cells: tuple[str, ...], *, is_late: bool = False) -> None:
        super().__init__(
            missing_cells.sentence(cells, missing_cells.LATER if is_late else missing_cells.METADATA)
        )
        self.cells = cells
        """The names of the cells that are missing."""
        self.is_late = is_late
        """Whether these cells get a change later."""


class PayloadError(DulyError):
    """The payload is not what the callback declares.

    `path` is the place within the payload (".to[0]"); `problem` is what is wrong there. Neither
    quotes the payload's values, so the text may be logged and shown.
    """

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path

    def inside(self, step: str) -> PayloadError:
        """Return the same error as seen from one level up, where `step` (".to", "[0]") leads to it."""
        return PayloadError(self.problem, step + self.path)

    def __str__(self) -> str:
        return f"payload{self.path}: {self.problem}"


class DecryptionError(DulyError):
    """A payload, result or checkpoint cannot be decrypted here; `key_id` names the key that it needs."""

    def __init__(self, message: str, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class SignatureError(DulyError):
    """An HTTP request is not from who it says, or is too old: `duly.webhooks.verify`. Answer 401, and do nothing."""


class InvalidTaskError(DulyError):
    """The Frontend refused a request's content; `field` is the path of what is wrong, or empty."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class UnknownLambdaError(DulyError):
    """No worker ever registered a lambda of this name."""


class PayloadTooLargeError(DulyError):
    """The payload exceeds its lambda's `payload_limit`. Store it elsewhere and send its address."""


class KeyConflictError(DulyError):
    """The idempotency key or task id belongs to a task with another payload, priority, collection, session, resources or fair key.

    For a task id also: with another lambda. Keys belong to a lambda, so a key with another lambda is a new task.
    """


class UniqueKeyTakenError(DulyError):
    """Another task has the unique key, and the call says REJECT, or REPLACE where the other task cannot be changed."""

    # The task that has the key.
    task_id: str = ""


class AttachmentMissingError(DulyError):
    """An attachment is not stored in the namespace of the lambda, or the task does not use it: upload it, or name another task."""


class AttachmentChangedError(DulyError):
    """A file changed while it was uploaded. Nothing was scheduled."""


class AttachmentCorruptError(DulyError):
    """What arrived is not what its hash or size says. Nothing was saved; a repeated fetch keeps the parts that are right."""


class AttachmentQuotaError(DulyError):
    """The attachments of the namespace would exceed its quota: remove tasks that use some, or ask an operator for more."""


class AttachmentsOffError(DulyError):
    """This installation stores no attachments. The message names the setting."""


class NotSentError(DulyError):
    """What a callback returned could not be uploaded. It is caught where the attempt ends."""


class CheckpointTooLargeError(DulyError, ValueError):
    """What a callback wants to keep for its next attempt is larger than 64 KiB: store it elsewhere and keep a reference."""


class TaskNotFoundError(DulyError):
    """No task has this id: it was never scheduled, or was removed after its retention."""


class GraphNotFoundError(DulyError):
    """No graph has this id, or no definition this name: it never existed, or was removed after its retention."""


class TaskFinalError(DulyError):
    """The task had already ended, so it cannot be cancelled, or completed. An earlier try of your own cancel may have ended it."""


class TokenNotCurrentError(DulyError):
    """No task waits for this completion token: its attempt is over, or no task has it. Nothing to do: the task goes on without it."""


class TokenTooEarlyError(DulyError):
    """The callback that gave out this completion token still runs. Complete the task once it has ended: try again."""


class NotADeadLetterError(DulyError):
    """The task is no dead letter: it did not end as FATAL_FAILURE, or was redriven before."""


class NotPendingError(DulyError):
    """Only a task that nobody runs yet can be changed: it runs, has ended, is parked, or is about to end without a run. See `status`."""

    status: TaskStatus | None = None


class LambdaInUseError(DulyError):
    """The lambda has tasks that have not ended: wait for them, or cancel them with it."""


class LambdaConflictError(DulyError):
    """Somebody changed the lambda since it was read: look at it, and decide again."""


class SessionNotBlockedError(DulyError):
    """Only a blocked session can be unblocked; one whose tasks still fail goes on by itself."""


class TimeTableNotFoundError(DulyError):
    """There is no time table of this name."""


class TimeTableConflictError(DulyError):
    """The time table's name is taken by another definition, or somebody changed it since it was read."""


class CalendarNotFoundError(DulyError):
    """There is no calendar of this name; or it is of another namespace than the time table's lambda."""


class CalendarInUseError(DulyError):
    """Time tables name the calendar: give them another one, or none. The message has their names."""


class CalendarConflictError(DulyError):
    """The calendar's name is taken, or somebody changed it since it was read."""


class UnknownResourceError(DulyError):
    """No resource of this name is declared: an operator declares it with `duly resources set`."""


class UnknownCellError(DulyError):
    """No cell has this name; the message has the names of all. `duly cells` lists them."""


class UnknownObjectiveError(DulyError):
    """No objective of this lambda or prefix is set: `duly slo objectives` lists those that there are."""


class UnknownPoolError(DulyError):
    """No pool of this name is declared: an operator declares it with `duly pools set`."""


class PoolConflictError(DulyError):
    """Somebody changed the pool since it was read: look at it, and decide again."""


class WatchLostError(DulyError):
    """What happened after the position of a watch is not known any more. The message says why.

    Begin another watch, and read the tasks to learn what happened meanwhile.
    """


class QuotaExceededError(DulyError):
    """More tasks of the lambda are scheduled than its quota of scheduling allows. The message says when to try again."""


class UnknownGateError(DulyError):
    """No gate of this name is in force, or the lambda has no breaker: `duly gates list` lists them."""


class ResourceConflictError(DulyError):
    """Somebody changed the resource since it was read: look at it, and decide again."""


class ResourceInUseError(DulyError):
    """Tasks hold units of the resource, or wait for some."""


class UnknownSettingError(DulyError):
    """No setting of this name can be changed while Duly runs. The message suggests the closest."""


class InvalidSettingError(DulyError):
    """The value is invalid. The setting is unchanged."""


class PermissionDeniedError(DulyError):
    """Whoever the token or certificate names may not do this; an operator can grant a role."""


class UnauthenticatedError(DulyError):
    """The Frontend identifies callers, and the token or certificate is missing, unknown, revoked or expired."""


class AddressError(DulyError, ValueError):
    """The address has no port, or is a URL. Write HOST:PORT."""


class WaitTimeoutError(DulyError, TimeoutError):
    """Not all tasks had ended at the timeout. They go on.

    `tasks` has them as last seen, in the order given.
    """

    def __init__(self, message: str, tasks: Sequence[Task]) -> None:
        super().__init__(message)
        self.tasks = tuple(tasks)


class GraphWaitTimeoutError(DulyError, TimeoutError):
    """Not all nodes of the graph had ended at the timeout. They go on.

    `graph` has its state as last seen, without its nodes.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(
            f"graph {graph.graph_id} ({graph.name}): {graph.ended} of {graph.total} nodes have ended"
        )
        self.graph = graph


class ResultOmittedError(DulyError):
    """The results of the predecessors are too large to come with the task. Read this one with a client, by its task id."""


class UnavailableError(DulyError, ConnectionError):
    """No Frontend answered within the time allowed.

    After `schedule` the outcome is unknown: the task may have been written. Schedule it again only with
    the same idempotency key. Repeats within one call are always safe. After `schedule` of a task without a
    key, `task_id` is the id that the task has if it was written: ask for it later. Otherwise it is empty. In the results of a
    ScheduleManyError each task has an error of its own.
    """

    task_id: str = ""


class RequestError(DulyError):
    """The Frontend answered with another gRPC status. The message names it."""


class ClosedError(DulyError):
    """The client was used before it was opened or after it was closed, or made where gRPC no longer works: in a process that
    was forked after another client was made.
    """


class TaskFailedError(DulyError):
    """`wait(raise_on_failure=True)`: the task ended without success. `task` is the task."""

    def __init__(self, task: Task) -> None:
        status: TaskStatus = task.status
        reason = f": {task.failure.kind.name}, {task.failure.message}" if task.failure else ""
        super().__init__(f"task {task.task_id} ({task.lambda_name}) ended as {status.name}{reason}")
        self.task = task


class ScheduleManyError(DulyError):
    """Some tasks were refused. The others were written.

    `results` has for each task, in the order given, its `ScheduledTask` or its error.
    """

    def __init__(self, results: Sequence[ScheduledTask | DulyError]) -> None:
        errors = [result for result in results if isinstance(result, DulyError)]
        super().__init__(f"{len(errors)} of {len(results)} tasks were not scheduled; the first: {errors[0]}")
        self.results = tuple(results)


def text_of(error: BaseException) -> str:
    """Return an exception's message, whatever its owner's `__str__` does."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (it is told that it cannot be told)
        return "(its message cannot be shown)"


def describe(error: BaseException) -> str:
    """Return "TypeName: message" for an exception, or its type's name if it has no message."""
    message = text_of(error)
    return f"{type(error).__qualname__}: {message}" if message else type(error).__qualname__
