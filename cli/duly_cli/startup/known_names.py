"""The names that a shell completes: those that the server knows, if it answers at once."""

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from duly_cli.startup.nouns import LIST

_WITHIN = 1.5
"""Seconds: a person waits with the finger on Tab."""
_NOUN_OF = {
    **dict.fromkeys(("lambda_name", "lambdas"), "lambdas"),
    **dict.fromkeys(("task_ids", "task_id"), "tasks"),
    **dict.fromkeys(("host_ids", "host"), "hosts"),
    **dict.fromkeys(("token_ids", "token_id"), "tokens"),
    "graph_id": "graphs",
    "process": "services",
    "principal": "grants",
    "gate_name": "gates",
    "pools": "pools",
}
"""The parameters of commands that name something, whatever the noun, and what they name."""
_OF_ITS_NOUN = {"name", "names", "key"}
"""Parameters that name what their noun lists."""
_NEW = {"tables create"}
"""Commands whose name must be a new one."""


def complete_names(root: Any) -> None:
    """Let the commands of `root` complete names; called only if a shell asks."""
    for path, command in _commands(root):
        for parameter in command.params:
            noun = _named_by(parameter, path)
            if noun and not (parameter.name == "name" and " ".join(path) in _NEW):
                parameter._custom_shell_complete = _completer(root, noun)  # noqa: SLF001 (as its constructor sets it)


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))
    if path and not hasattr(command, "commands"):
        yield path, command


def _named_by(parameter: Any, path: tuple[str, ...]) -> str:
    """Return the noun that lists what a parameter names; empty: it names nothing that is listed."""
    if parameter.name in _OF_ITS_NOUN and parameter.param_type_name == "argument" and len(path) > 1:
        return "" if path[:2] == ("graphs", "run") else path[0]
    noun = _NOUN_OF.get(parameter.name, "")
    if noun == "tasks" and ("dead-letters" in path or "redrive" in path):
        return "dead-letters"
    return noun


def _completer(root: Any, noun: str) -> Callable[[Any, Any, str], list[Any]]:
    def complete(ctx: Any, _parameter: Any, incomplete: str) -> list[Any]:
        address = ctx.params.get("address")
        where = ["--address", address] if address else []
        return [name for name in _names(root, noun, where) if name.startswith(incomplete) and _is_plain(name)]

    return complete


def _is_plain(name: str) -> bool:
    """Return whether a shell reads a name as it is: others may have chosen it, and a shell would run `$(...)`."""
    return shlex.quote(name) == name


def _names(root: Any, noun: str, where: list[str]) -> list[str]:
    """Return what `duly NOUN list -o name` prints; nothing if no Frontend answers in time."""
    words = [noun, LIST, "-o", "name", *where]
    written = StringIO()
    try:
        with _deadline(), redirect_stdout(written), redirect_stderr(StringIO()):
            root.main(args=words, prog_name="duly", standalone_mode=False)
    except (Exception, SystemExit):  # noqa: BLE001 (whatever is wrong: Tab then completes nothing)
        return []
    return written.getvalue().splitlines()


@contextmanager
def _deadline() -> Iterator[None]:
    """Raise TimeoutError within it when the time is over."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    asked = os.environ.pop("_DULY_COMPLETE", None)  # or the command would complete, too
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _WITHIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if asked is not None:
            os.environ["_DULY_COMPLETE"] = asked
