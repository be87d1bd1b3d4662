"""The access of whoever made the call that is being served: set by the interceptor, read by servicers."""

import shlex
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from duly_core.access.grants import UNRESTRICTED, Access, Scope
from duly_core.access.roles import Action, Role, least_role
from duly_core.errors import PermissionDeniedError
from duly_core.lambdas.names import base_name
from duly_core.lambdas.patterns import EVERYTHING

_access: ContextVar[Access] = ContextVar("duly_access", default=UNRESTRICTED)

_NOTHING = Access("", ())
"""Of a caller whose roles cannot be read."""

_peer: ContextVar[str] = ContextVar("duly_peer", default="")

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


def set_roles_unknown() -> None:
    """Remember for the rest of this call that the store did not say what the caller may do: it may do nothing."""
    _access.set(_NOTHING)


def are_roles_known() -> bool:
    """Whether the store said what the caller may do. Otherwise it is told that the store does not answer, and nothing else."""
    return _access.get() is not _NOTHING


def set_peer(peer: str) -> None:
    """Remember where the call came from, for calls that do not say who makes them."""
    _peer.set(peer)


def current_caller() -> str:
    """Return who must share with others: the principal; where nobody is asked who they are, the connection."""
    return _access.get().principal or _peer.get()


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
        raise denied(access, action, EVERYTHING)


def scheduler() -> str | None:
    """Return the principal that schedules what this call schedules; None: nobody is asked who they are."""
    return _access.get().principal or None


def denied(access: Access, action: Action, *patterns: str, more: str = "") -> PermissionDeniedError:
    """Return the refusal for lambdas or a pattern, with the command by which an operator gives the least role that would do."""
    what = "everything" if patterns == (EVERYTHING,) else ", ".join(map(repr, patterns)) + more
    role = least_role(action, of_all_tasks=any(each.endswith(EVERYTHING) for each in patterns))
    return PermissionDeniedError(
        f"{access.principal!r} may not {action} {what}: {_remedy(access, role, *patterns)}"
    )


def denied_everything(access: Access, action: Action) -> PermissionDeniedError:
    """Return the refusal for a caller who may not do this with any lambda."""
    remedy = _remedy(access, least_role(action), _ANY)
    return PermissionDeniedError(f"{access.principal!r} has no role that may {action}: {remedy}")


_ANY = "LAMBDA"
"""In a command: for the reader to replace."""


def _remedy(access: Access, role: Role, *patterns: str) -> str:
    # Roles are given for lambdas: a queue of one (x@2, x@~lab) needs the role of its lambda.
    lambdas = dict.fromkeys(base_name(each) for each in patterns)
    named = [each if each.isprintable() else _ANY for each in lambdas]
    command = shlex.join(["duly", "grants", "add", access.principal, role, *named])
    return f"that needs the role {role}, which an operator gives with `{command}`"


def restriction(action: Action) -> Scope | None:
    """Return the lambdas and tasks that the caller may reach with an action; None: all."""
    scope = _access.get().scope(action)
    return None if scope.is_everything else scope
