"""Says which turns are before a task of a lambda whose fair keys take turns."""

from duly_core.explain.turns import MOST_COUNTED, Turns
from duly_core.lambdas.names import base_name
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import command, number, reason
from duly_wire.v1 import explain_pb2


def turn_reason(row: TaskRow, turns: Turns, higher: int, *, may_run: bool) -> explain_pb2.Reason:
    """Say what is before a task in its turns, and `higher` tasks of higher priorities."""
    ahead = min(turns.ahead, MOST_COUNTED)
    more = "more than " if turns.ahead > MOST_COUNTED else ""
    due = f"{more}{number(ahead, 'due task')}"
    if turns.key and turns.ahead:
        text = f"key '{turns.key}' has {due} before this one"
    elif turns.key:
        text = f"it is the next task of key '{turns.key}'"
    elif turns.ahead:
        text = f"{due} without a fair key {'is' if ahead == 1 else 'are'} before it"
    else:
        text = "it is the next task without a fair key"
    if turns.others:
        others = f"{'more than ' if turns.has_more_keys else ''}{number(turns.others, 'other key')}"
        text += f"; {others} {'takes' if turns.others == 1 else 'take'} turns with it"
    else:
        text += "; no other key has a due task"
    if turns.weight > 1:
        text += f"; {number(turns.weight, 'task')} of it start in its turn"
    if higher:
        text += f"; {number(higher, 'task')} of higher priorities {'goes' if higher == 1 else 'go'} first"
    shown = command("lambdas", "fair", base_name(row["lambda"]))
    return reason(
        explain_pb2.REASON_KIND_BACKLOG,
        text,
        f"add workers or slots for its lambda, or set the weight of its key: {shown} shows them"
        if may_run
        else "",
        since_at=row["next_trigger_at"],
        count=ahead,
        is_estimated=turns.ahead > MOST_COUNTED,
    )
