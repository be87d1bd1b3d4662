"""The page of commands, from the definitions that `duly --help` shows."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from duly_cli.__main__ import app
from scripts.reference.markdown import code, page, sentence, table

_INTRODUCTION = """
`duly COMMAND --help` shows the same. Commands that call the Frontend find it by `--address`, else by the environment
variable `DULY_ADDRESS`, else at `127.0.0.1:7401`.

Commands are `duly NOUN VERB`. Nouns are singular or plural, and a noun alone lists: [the grammar](commands.md) has a table of
nouns and verbs, and the exit codes.
"""


def text() -> str:
    """Return the page."""
    return page("The duly command", _INTRODUCTION, *_parts("duly", typer.main.get_command(app), {}))


def _parts(path: str, command: Any, written: dict[Any, str]) -> Iterator[str]:
    """Yield the parts of commands; of one that is `written` under a shorter name only where that is."""
    inner = {name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden}
    for name, each in sorted(inner.items(), key=lambda item: hasattr(item[1], "commands")):
        of = f"{path} {name}"
        function = inspect.unwrap(each.callback) if each.callback and not hasattr(each, "commands") else each
        if function in written:
            shorter = written[function]
            yield f"## {of}\n\nThe same as [{shorter}](#{shorter.replace(' ', '-')}).\n"
            continue
        written[function] = of
        yield _part(of, each)
        yield from _parts(of, each, written)


def _part(path: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    names = [_argument(parameter) for parameter in arguments]
    usage = " ".join([path, *(["[OPTIONS]"] if len(shown) > len(arguments) else []), *names])
    rows = [
        (code(_name(parameter)), _default(parameter), sentence(parameter.help or ""))
        for parameter in [*arguments, *(parameter for parameter in shown if parameter not in arguments)]
    ]
    text = sentence(re.sub(r"\s+", " ", command.help or ""))
    return f"## {path}\n\n{text}\n\n```\n{usage}\n```\n\n" + (
        table(("argument or option", "default", "meaning"), rows) if rows else ""
    )


def _argument(parameter: Any) -> str:
    name = _name(parameter) + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    default = parameter.default
    if default is None or default is False or default in ([], ""):
        return ""
    value = getattr(default, "value", default)
    return "yes" if value is True else code(str(value))
