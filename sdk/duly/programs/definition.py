"""Makes the application that a program is: its lambdas, all with the program as their callback."""

from __future__ import annotations

import asyncio
import shlex
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from duly.callbacks.app import App
from duly.callbacks.callback import Callback, checked_name
from duly.errors import RegistrationError
from duly.lambdas.policy import Policy, PolicyOptions
from duly.programs.delimited import Delimited
from duly.programs.instance import StartError
from duly.programs.json_lines import JsonLines
from duly.programs.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from duly.programs.messages import Form

Messages: TypeAlias = Literal["json", "protobuf"]
_FORMS: dict[str, Callable[[], Form]] = {"json": JsonLines, "protobuf": Delimited}
_START_TIMEOUT = timedelta(seconds=30)


def program_app(
    argv: str | Sequence[str],
    lambdas: Iterable[str],
    *,
    owner: str = "",
    version: str = "",
    messages: Messages = "json",
    start_timeout: timedelta = _START_TIMEOUT,
    **options: Unpack[PolicyOptions],
) -> App:
    """Return an application whose lambdas a program runs, in whatever language.

        app = duly.programs.program_app(["node", "handler.mjs"], ["thumbnail.make"], max_runtime=timedelta(minutes=2))

    `argv`: the program and its arguments; a text is divided as a shell does, but no shell runs. `lambdas`: the names that it serves.
    `messages`: "json" lines, or "protobuf" (duly/v1/program.proto).
    `options`: the policy of each, as for `App.callback`. `start_timeout`: for the program to say that it is ready.
    `owner` and `version` are those of `duly.App`.

    An instance is started and ended at once, to see that it can be. Raises RegistrationError if it cannot.
    """
    app = App(owner=owner, version=version)
    program = Program(_words(argv), _form(messages), start_timeout)
    policy = Policy(**options)
    for name in lambdas:
        app.add(
            Callback(
                name=checked_name(name),
                function=program.run,
                policy=policy,
                raw=False,
                reader=None,
                takes_payload=True,
                takes_context=True,
                as_sent=True,
            )
        )
    if not app.callbacks:
        raise RegistrationError("name the lambdas that the program serves: --lambda NAME")
    with ThreadPoolExecutor(max_workers=1) as thread:  # in this one a loop may run
        thread.submit(asyncio.run, _try(program)).result()
    return app


def application(**options: Any) -> App:
    """Return what `duly worker --exec` serves; durations are numbers of seconds."""
    options["version"] = options.pop("code_version", "")
    for name in ("max_runtime", "start_timeout"):
        if name in options:
            options[name] = timedelta(seconds=options[name])
    return program_app(options.pop("exec"), options.pop("lambdas"), **options)


def _words(argv: str | Sequence[str]) -> list[str]:
    try:
        words = shlex.split(argv) if isinstance(argv, str) else [*argv]
    except ValueError as error:
        raise RegistrationError(f"the program {argv!r} cannot be divided into words: {error}") from None
    if not words:
        raise RegistrationError("name the program: --exec ./handler")
    return words


def _form(messages: str) -> Callable[[], Form]:
    try:
        return _FORMS[messages]
    except KeyError:
        raise RegistrationError(f"messages are {' or '.join(_FORMS)}, not {messages!r}") from None


async def _try(program: Program) -> None:
    try:
        instance = await program.start()
    except StartError as error:
        raise RegistrationError(str(error)) from None
    await instance.end()
