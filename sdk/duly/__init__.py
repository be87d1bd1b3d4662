"""Duly's SDK: schedule tasks from any program, and write the callbacks that run them.

    with duly.Client() as client:
        task = client.schedule("mail.send", {"to": "ann@example.org"}, delay=timedelta(minutes=5))
        print(client.wait(task).result)

Importing this package does not load gRPC: the processes that run callbacks must not have it (it does
not survive a fork). `Client` and `AsyncClient` load it when they are first named.
"""

from typing import TYPE_CHECKING, Any

from duly.attempt import Attempt
from duly.context import TaskContext
from duly.enums import (
    AttemptOutcome,
    FailureKind,
    Outcome,
    Priority,
    SessionOrder,
    SessionPolicy,
    TaskStatus,
)
from duly.errors import (
    AddressError,
    AppImportError,
    CheckpointTooLargeError,
    ClosedError,
    DulyError,
    EncodingError,
    InvalidSettingError,
    InvalidTaskError,
    KeyConflictError,
    NotADeadLetterError,
    NotPendingError,
    PayloadError,
    PayloadTooLargeError,
    RegistrationError,
    RequestError,
    ScheduleManyError,
    SessionNotBlockedError,
    TaskFailedError,
    TaskFinalError,
    TaskNotFoundError,
    UnavailableError,
    UnknownLambdaError,
    UnknownSettingError,
    WaitTimeoutError,
)
from duly.new_task import NewTask, ScheduledTask
from duly.outcome import (
    CallbackOutcome,
    Cancelled,
    FatalFailure,
    Interrupted,
    RetriableFailure,
    Snooze,
    Success,
)
from duly.policy import Backoff
from duly.registry import App
from duly.session import Session, SessionState
from duly.task import Failure, Task
from duly.task_update import TaskUpdate

if TYPE_CHECKING:
    from duly.client import AsyncClient
    from duly.sync_client import Client

__all__ = [
    "AddressError",
    "App",
    "AppImportError",
    "AsyncClient",
    "Attempt",
    "AttemptOutcome",
    "Backoff",
    "CallbackOutcome",
    "Cancelled",
    "CheckpointTooLargeError",
    "Client",
    "ClosedError",
    "DulyError",
    "EncodingError",
    "Failure",
    "FailureKind",
    "FatalFailure",
    "Interrupted",
    "InvalidSettingError",
    "InvalidTaskError",
    "KeyConflictError",
    "NewTask",
    "NotADeadLetterError",
    "NotPendingError",
    "Outcome",
    "PayloadError",
    "PayloadTooLargeError",
    "Priority",
    "RegistrationError",
    "RequestError",
    "RetriableFailure",
    "ScheduleManyError",
    "ScheduledTask",
    "Session",
    "SessionNotBlockedError",
    "SessionOrder",
    "SessionPolicy",
    "SessionState",
    "Snooze",
    "Success",
    "Task",
    "TaskContext",
    "TaskFailedError",
    "TaskFinalError",
    "TaskNotFoundError",
    "TaskStatus",
    "TaskUpdate",
    "UnavailableError",
    "UnknownLambdaError",
    "UnknownSettingError",
    "WaitTimeoutError",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from duly.client import AsyncClient  # the reason is above

        return AsyncClient
    if name == "Client":
        from duly.sync_client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
