"""The page of errors: what the SDK raises, what items and calls are answered, and how processes end."""

import inspect

from google.rpc import code_pb2

import duly.errors
from duly.transport import error_mapping
from duly_core import errors as core_errors
from duly_core.rpc.error_status import status_of
from duly_wire.v1 import task_pb2
from scripts.reference import rpcs
from scripts.reference.markdown import code, page, sentence, table
from scripts.reference.protos import files

_INTRODUCTION = """
[For clients](../clients.md#errors) says what to do about each kind. [The runbook](../operators/runbook.md) has
the errors of the `duly` command and of processes.
"""
_STATUSES = """## gRPC status codes

A call fails as a whole with one of these codes. Errors of single items come with status `OK`, see
[ErrorCode](#errorcode).

"""
_STATUS_NOTES = {
    "INVALID_ARGUMENT": "The request is invalid. The details name the field. Do not repeat it unchanged.",
    "UNAVAILABLE": "The outcome is unknown, or the server cannot serve now. Repeat with the same ids, keys and tokens. "
    "`RedriveTasks` is the exception: start it again without `as_of` and `offset`.",
    "DEADLINE_EXCEEDED": "The outcome is unknown. Act as for `UNAVAILABLE`.",
    "FAILED_PRECONDITION": "The caller has to do something first. The message says what.",
    "RESOURCE_EXHAUSTED": "With a `google.rpc.RetryInfo`: the server is overloaded. Wait as long as it says, then repeat. "
    "Otherwise the request or its answer exceeds `rpc.max_message_bytes`. Send or ask for less in one call.",
    "UNIMPLEMENTED": "The server is older than the caller, or is not a Duly server.",
}
_AT_THE_START = {"SettingsError", "PortInUseError", "ApplicationError"}
"""Errors that end a process at its start, so that no caller gets them."""


def text() -> str:
    """Return the page."""
    return page("Errors", _INTRODUCTION, _sdk(), _items(), _statuses(), _processes())


def _sdk() -> str:
    codes = {error.__name__: number for number, error in error_mapping._BY_CODE.items()}
    codes["InvalidTaskError"] = task_pb2.ERROR_CODE_INVALID_ARGUMENT
    rows = [
        (
            code(f"duly.{name}"),
            code(task_pb2.ErrorCode.Name(codes[name]).removeprefix("ERROR_CODE_")) if name in codes else "",
            sentence(inspect.cleandoc(error.__doc__ or "")),
        )
        for name, error in vars(duly.errors).items()
        if inspect.isclass(error) and issubclass(error, duly.errors.DulyError)
    ]
    return (
        "## SDK errors\n\nEvery error of the SDK is a `duly.DulyError`. The second column is the item code behind it.\n\n"
        + table(("error", "item code", "meaning"), rows)
    )


def _items() -> str:
    parts = []
    for file in files():
        for index, found in enumerate(file.descriptor.enum_type):
            if found.name in {"ErrorCode", "FailureKind"}:
                parts.append(rpcs.enum(file, index, "##"))
    return "\n".join(sorted(parts))


def _statuses() -> str:
    return _STATUSES + table(
        ("status", "meaning"), [(code(name), meaning) for name, meaning in _STATUS_NOTES.items()]
    )


def _processes() -> str:
    rows = []
    for name, error in vars(core_errors).items():
        if inspect.isclass(error) and issubclass(error, core_errors.DulyError):
            made = error("field", "") if error is core_errors.InvalidRequestError else error("")
            rows.append(
                (
                    code(name),
                    "" if name in _AT_THE_START else code(code_pb2.Code.Name(status_of(made).code)),
                    sentence(inspect.cleandoc(error.__doc__ or "")),
                )
            )
    return (
        "## Errors of Duly's processes\n\nThe name appears in logs. The second column is the status that a caller gets. "
        "Where it is empty, the error ends the process at its start.\n\n"
        + table(("error", "status", "meaning"), rows)
    )
