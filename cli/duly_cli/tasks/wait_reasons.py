"""Says on stderr why a command that waits for tasks still waits: the first reason of Explain."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import duly
from duly_cli.output.error_text import error_text
from duly_cli.output.safe_text import one_line, say

ASK_EVERY = timedelta(seconds=3)
"""The first reason is said after this time; each change of it within this time."""
_READ_AT_ONCE = 100
_LAST_ANSWER_WITHIN = timedelta(seconds=1)


def wait_told(
    client: "duly.Client", tasks: "Sequence[str | duly.ScheduledTask]", timeout: timedelta | None = None
) -> list["duly.Task"]:
    """Wait for tasks as `Client.wait_many` does, and say on stderr what the first of them waits for."""
    left = [str(task) for task in tasks]

    def explain(ended: threading.Event) -> "duly.Explanation | None":
        while left and not ended.is_set():
            some = client.get_many(left[:_READ_AT_ONCE])
            live = (place for place, task in enumerate(some) if task is not None and not task.status.is_final)
            place = next(live, None)
            del left[: len(some) if place is None else place]
            if place is not None:
                return client.explain(left[0], history=False)
        return None

    with _reasons_told(explain):
        return client.wait_many(tasks, timeout)


def wait_graph_told(client: "duly.Client", graph_id: str, timeout: timedelta | None = None) -> "duly.Graph":
    """Wait for a graph as `Client.wait_graph` does, and say on stderr what its first live node waits for."""

    def explain(_ended: threading.Event) -> "duly.Explanation | None":
        nodes = client.get_graph(graph_id).nodes.values()
        live = [node for node in nodes if node.status is not None and not node.status.is_final]
        # those that wait for other nodes come last: their reason is one of the others
        live.sort(key=lambda node: node.status is duly.TaskStatus.WAITING)
        return client.explain(live[0].task_id, history=False) if live else None

    with _reasons_told(explain):
        return client.wait_graph(graph_id, timeout)


@contextmanager
def _reasons_told(explain: "Callable[[threading.Event], duly.Explanation | None]") -> Iterator[None]:
    """Say why a task waits while the body waits for it. `explain` is called every 3 s, in a thread of its own.

    A task that cannot be explained does not end the wait: the error is said once, and Explain is called again.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_tell, args=(explain, ended), name="duly-wait-reasons", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(
            _LAST_ANSWER_WITHIN.total_seconds()
        )  # a Frontend that hangs must not delay the command's end


def _tell(explain: "Callable[[threading.Event], duly.Explanation | None]", ended: threading.Event) -> None:
    said: object = None
    while not ended.wait(ASK_EVERY.total_seconds()):
        what: object
        try:
            found = explain(ended)
        except duly.DulyError as error:
            what, text = type(error), f"no reason known: {error_text(error)}"
        else:
            if found is None or not found.reasons or found.status.is_final:
                continue
            first = found.reasons[0]
            # not by its text: that counts seconds and tasks
            what = (found.task_id, first.kind, first.resource, first.gate, first.session, first.holder)
            text = f"{found.task_id}: {one_line(first.text)}" + (
                f"\n  -> {one_line(first.action)}" if first.action else ""
            )
        if what != said and not ended.is_set():
            said = what
            say(f"duly: {text}", err=True)
