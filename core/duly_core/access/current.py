"""The access of whoever made the call that is being served: set by the interceptor, read by servicers."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from duly_core.access.grants import UNRESTRICTED, Access, Scope
from duly_core.access.roles import Action
from duly_core.errors import PermissionDeniedError

_access: ContextVar[Access] = ContextVar("duly_access", default=UNRESTRICTED)

Admission = Callable[[str], Awaitable[Access]]
"""Given a method's full path, answers what the caller may do now, or refuses."""

stream_admission: ContextVar[Admission | None] = ContextVar("duly_stream_admission", default=None)
"""Set for a stream that carries calls: each call on it is admitted for itself, since grants change and tokens expire."""

Refusals = Callable[[str, Any, str], Awaitable[None]]
"""Given a method's name, the request (or the items of a served one that were refused) and the name of the status's code, keeps a refused call in the audit log."""

stream_refusals: ContextVar[Refusals | None] = ContextVar("duly_stream_refusals", default=None)
"""Set for a stream that carries calls: it is told of those that fail or refuse items, and keeps those that were refused."""


def current_access() -> Access:
    """Return what the caller may do; everything where nobody is asked who they are."""
    return _access.get()


def set_access(access: Access) -> None:
    """Remember it for the rest of this call."""
    _access.set(access)


def require(action: Action, lambda_name: str) -> None:
    """Let the call go on.

    Raises:
        PermissionDeniedError: the caller may not do this with the lambda. The text is the same whether the lambda exists.
    """
    access = _access.get()
    if not access.may(action, lambda_name):
        raise denied(access, action, lambda_name)


def require_everywhere(action: Action) -> None:
    """Let the call go on.

    Raises:
        PermissionDeniedError: the caller may not do this for all lambdas.
    """
    access = _access.get()
    if not access.scope(action).is_everything:
        raise denied(access, action, "*")


def scheduler() -> str | None:
    """Return the principal that schedules what this call schedules; None: nobody is asked who they are."""
    return _access.get().principal or None


def denied(access: Access, action: Action, pattern: str) -> PermissionDeniedError:
    """Return the refusal."""
    return PermissionDeniedError(
        f"{access.principal or 'this caller'!r} may not {action} {pattern!r}: an operator can grant a role for it (duly grant)"
    )


def restriction(action: Action) -> Scope | None:
    """Return the lambdas and tasks that the caller may reach with an action; None: all."""
    scope = _access.get().scope(action)
    return None if scope.is_everything else scope
