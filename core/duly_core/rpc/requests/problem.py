"""Why a request, or one item of it, cannot be taken."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from duly_core.errors import InvalidRequestError
from duly_core.traffic.slices import Steps, each
from duly_wire.v1 import task_pb2

Asked = TypeVar("Asked")
Checked = TypeVar("Checked")


class Problem(InvalidRequestError):  # noqa: N818 (it is an answer for one item, not a failure of ours)
    """An answer for one item; where nothing catches it, the whole call is refused."""

    def __init__(
        self,
        field: str,
        message: str,
        code: "task_pb2.ErrorCode.ValueType" = task_pb2.ERROR_CODE_INVALID_ARGUMENT,
    ) -> None:
        super().__init__(field, message)
        self.code = code

    def to_wire(self) -> task_pb2.ItemError:
        return task_pb2.ItemError(code=self.code, field=self.field, message=self.message)


def check_each(check: Callable[[Asked], Checked], items: Iterable[Asked]) -> list[Checked | Problem]:
    """Return what `check` makes of each item, or the Problem that it raises."""
    return [_checked(check, item) for item in items]


def checking_each(
    check: Callable[[Asked], Checked], items: Iterable[Asked], a_step: int = 100
) -> Steps[list[Checked | Problem]]:
    """Do the same in steps of so many items."""
    return each(partial(_checked, check), items, a_step)


def _checked(check: Callable[[Asked], Checked], item: Asked) -> Checked | Problem:
    try:
        return check(item)
    except Problem as problem:
        return problem
