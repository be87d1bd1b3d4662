"""Why a request, or one item of it, cannot be taken."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from duly_core.errors import InvalidRequestError
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
    checked: list[Checked | Problem] = []
    for item in items:
        try:
            checked.append(check(item))
        except Problem as problem:
            checked.append(problem)
    return checked
