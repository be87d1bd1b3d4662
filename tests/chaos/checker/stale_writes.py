"""C3, what is asked for with the token of a claim that is over changes nothing, in any table."""

from collections.abc import Iterator

from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History


def stale_writes(history: History, lines: Lines) -> Iterator[Violation]:
    """C3.replayed."""
    for write in history.stale_writes:
        yield Violation(
            "C3.replayed",
            write.task_id,
            f"a call with an old token changes no row; it made this {write.what}",
            (f"{lines.at(write.at_ns)}: {write.columns}",),
        )
