"""What a host may do with lambdas: claim those it may run, and schedule what their callbacks ask for."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from duly_core.access.current import current_access, denied, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.lambdas.names import namespace_of
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.scope import Origin
from duly_wire.v1 import task_pb2

_MOST_NAMED = 10
_REMEMBERED = 256


class Parent(NamedTuple):
    """The task whose callback schedules others."""

    origin: Origin | None
    """None: it is unknown, or nobody was asked who they are."""

    def check(self, name: str) -> None:
        """Check that its callback may schedule a task of this lambda: of its namespace, or of one that its host may schedule.

        Raises:
            Problem: it may not.
        """
        if not self.may_schedule(name):
            message = str(denied(current_access(), Action.SCHEDULE, name[:128]))
            raise Problem("lambda", message, task_pb2.ERROR_CODE_PERMISSION_DENIED)

    def may_schedule(self, name: str) -> bool:
        """Return whether its callback may schedule a task of this lambda."""
        access = current_access()
        if not access.principal or access.may(Action.SCHEDULE, name):
            return True
        return self.origin is not None and namespace_of(self.origin.lambda_name) == namespace_of(name)

    @property
    def scheduled_by(self) -> str | None:
        """The principal that its children belong to."""
        return None if self.origin is None else self.origin.scheduled_by


def parent_of(origins: Mapping[bytes, Origin], task_id: bytes) -> Parent:
    """Return the parent with this id."""
    return Parent(origins.get(task_id))


def require_run(names: Iterable[str]) -> None:
    """Let the call go on.

    Raises:
        PermissionDeniedError: the caller may not run some of these lambdas. The text is the same whether they exist.
    """
    scope = restriction(Action.RUN)
    if scope is None:
        return
    if missing := _missing(scope, frozenset(names)):
        more = f" (and {len(missing) - _MOST_NAMED:,} more)" if len(missing) > _MOST_NAMED else ""
        raise denied(current_access(), Action.RUN, *missing[:_MOST_NAMED], more=more)


@lru_cache(_REMEMBERED)
def _missing(scope: Scope, names: frozenset[str]) -> list[str]:
    """Return those of these lambdas that are not in the scope. A host asks for the same ones again and again."""
    return sorted(name for name in names if not scope.covers(name))
