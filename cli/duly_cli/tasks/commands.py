"""`duly schedule`, `duly get` and the others: the SDK's client from the shell."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.oidc.signed_in_token import SignedInToken, has_token_of_environment, signed_in_token
from duly_cli.output.error_text import error_text
from duly_cli.output.json_text import show_all
from duly_cli.output.safe_text import say
from duly_cli.output.task_text import listed_as_json, task_as_json, task_lines, task_table
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import parse_duration
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.filters import Collection, InCell, Lambda, Priorities, Where, which_tasks
from duly_cli.tasks.references import Ids, Keys, OfLambda, named_tasks
from duly_cli.tasks.wait_reasons import wait_told

if TYPE_CHECKING:
    from duly.tasks.reads import TaskRef

_PANEL = "Tasks"

Address = Annotated[
    str, typer.Option(envvar="DULY_ADDRESS", help="Where the Frontend is: HOST:PORT.", show_default=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, for scripts: an object a line.")]
TaskIds = Annotated[list[str], typer.Argument(help="One or more task ids.", metavar="TASK_ID")]

DEFAULT_ADDRESS = "127.0.0.1:7401"

_NO_ANSWER = os.EX_UNAVAILABLE
UNREACHABLE_AFTER = timedelta(seconds=3)
"""Somebody looks on: a program would rather wait until the Frontend is there."""


_REJECTED_SIGN_IN = "this was the sign-in of `duly login`: run it again"
_NO_SIGN_IN = "people sign in with `duly login`, where there is an identity provider"

_tasks = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add the tasks' commands, with what others add to `tasks`."""
    app.add_typer(
        _tasks,
        name="tasks",
        rich_help_panel=_PANEL,
        help="List tasks, show one; schedule, change and end them. `duly list`, `get` and others are short for its verbs.",
    )
    app.command("get", rich_help_panel=_PANEL)(get)
    app.command("wait", rich_help_panel=_PANEL)(wait)
    app.command("list", rich_help_panel=_PANEL)(list_tasks)
    _tasks.command("list")(list_tasks)
    _tasks.command("show")(get)
    _tasks.command("get", hidden=True)(get)
    _tasks.command("wait")(wait)


def add_to_tasks(app: typer.Typer, command: Callable[..., None], panel: str = _PANEL) -> None:
    """Add a command as a verb of `tasks` and, shorter, by itself."""
    app.command(rich_help_panel=panel)(command)
    _tasks.command()(command)


@contextmanager
def connected(address: str, *, is_patient: bool = False, signed_in: bool = True) -> Iterator["duly.Client"]:
    """Yield a client whose errors become one line on stderr and exit code 1, or 69 if no Frontend answered.

    `is_patient`: a Frontend that nobody has reached yet is waited for as long as the call may take.
    `signed_in`: the sign-in of `duly login` is shown, where the environment has no token.
    """
    _check_environment()
    token, problem = None, ""
    try:
        if signed_in:
            token, problem = _usable_token(address)
        with duly.Client(
            address, token=token, unreachable_after=None if is_patient else UNREACHABLE_AFTER
        ) as client:
            yield client
    except (duly.DulyError, TypeError, ValueError) as error:
        say(f"duly: {error_text(error)}", err=True)
        for note in getattr(error, "__notes__", ()):
            say(f"duly: {note}", err=True)
        if isinstance(error, duly.UnauthenticatedError) and not has_token_of_environment():
            say(f"duly: {problem or (_REJECTED_SIGN_IN if token else _NO_SIGN_IN)}", err=True)
        elif isinstance(error, duly.PermissionDeniedError) and problem:
            say(f"duly: {problem}", err=True)
        raise typer.Exit(_NO_ANSWER if isinstance(error, duly.UnavailableError) else 1) from error


def _usable_token(address: str) -> "tuple[SignedInToken | None, str]":
    """Return the token of the sign-in, or why it cannot be shown: the server may need none, or take a certificate."""
    try:
        token = signed_in_token(address)
        if token is not None:
            token()
    except duly.CredentialsError as error:
        return None, str(error)
    return token, ""


def _check_environment() -> None:
    """Refuse what would send the command somewhere else than was meant."""
    from duly_core.config.config_file import read_config
    from duly_core.config.section_names import misspelt_name
    from duly_core.errors import SettingsError

    if found := misspelt_name(os.environ):
        variable, meant = found
        say(f"duly: the environment variable {variable} is not one of Duly's: do you mean {meant}?", err=True)
        raise typer.Exit(os.EX_CONFIG)
    if "DULY_CONFIG" in os.environ:
        try:
            read_config()
        except SettingsError as error:
            say(f"duly: {error}", err=True)
            raise typer.Exit(os.EX_CONFIG) from error


def say_answers(
    tasks: Sequence[object],
    answers: Sequence[duly.TaskStatus | duly.DulyError],
    describe: Callable[[duly.TaskStatus], str],
) -> None:
    """Print what came of each task, a line each; exit 1 if one was refused."""
    for task, answer in zip(tasks, answers, strict=True):
        if isinstance(answer, duly.DulyError):
            field = getattr(answer, "field", "")
            say(f"{task}: {str(answer).removeprefix(f'{field}: ')}", err=True)
        else:
            say(f"{task}: {describe(answer)}")
    if any(isinstance(answer, duly.DulyError) for answer in answers):
        raise typer.Exit(1)


def get(
    task_ids: Ids = None,
    lambda_name: OfLambda = "",
    key: Keys = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show tasks, with payload, result and the runs that did not succeed; exit 1 if one does not exist."""
    show_tasks(named_tasks(task_ids, lambda_name, key), address, as_json=as_json)


def show_tasks(
    tasks: "Sequence[TaskRef]", address: str, *, as_json: bool, only: "duly.TaskStatus | None" = None
) -> None:
    """Show tasks; end with 1 if one does not exist, or has another status than `only`."""
    found = []
    with connected(address) as client:
        for each in tasks:
            try:
                task = client.get(each)
            except (duly.TaskNotFoundError, duly.InvalidTaskError) as error:
                say(f"duly: {error}", err=True)
                continue
            if only is None or task.status is only:
                found.append(task)
            else:
                say(f"duly: {each} is {task.status.name.lower()}, not {only.name.lower()}", err=True)
        most = {} if as_json else _max_attempts(client, found)
    show(found, as_json=as_json, max_attempts=most)
    if len(found) < len(tasks):
        raise typer.Exit(1)


def wait(
    task_ids: Ids = None,
    lambda_name: OfLambda = "",
    key: Keys = None,
    timeout: Annotated[
        str | None, typer.Option(help="How long to wait: 30s, 5m.", show_default="no limit")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Wait until tasks have ended, and show them; exit 1 if one did not succeed. After 3 s, say what they wait for."""
    named = named_tasks(task_ids, lambda_name, key)
    with connected(address, is_patient=timeout is not None) as client:
        found = [each if isinstance(each, str) else client.get(each).task_id for each in named]
        ended = wait_told(client, found, parse_duration(timeout, "--timeout"))
        show(ended, as_json=as_json)
    if any(task.status is not duly.TaskStatus.SUCCESS for task in ended):
        raise typer.Exit(1)


def list_tasks(
    lambda_name: Lambda = "",
    collection: Collection = "",
    status: Annotated[
        list[str] | None,
        typer.Option(help="In this status only (new, success, ...); may be repeated.", show_default=False),
    ] = None,
    priority: Priorities = None,
    domain: Annotated[str, typer.Option(help="Of this domain only.", show_default=False)] = "",
    where: Where = None,
    cell: InCell = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest first.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List tasks, the newest first; `duly get` shows all of one."""
    which = which_tasks(lambda_name, collection, status=status, priority=priority, where=where, cell=cell)
    if domain:
        which["domain"] = domain
    with connected(address) as client:
        found = list(islice(client.list(page_size=min(limit, 1000), **which), limit))
    if which and not (found or as_json):
        say("no tasks match")
    else:
        show_all(found, task_table, listed_as_json, as_json=as_json)


def _max_attempts(client: "duly.Client", tasks: "Sequence[duly.Task]") -> dict[str, int]:
    """Return the limits of the lambdas of tasks that have not ended, by name."""
    names = {task.lambda_name for task in tasks if not task.status.is_final}
    if not names:
        return {}
    return {each.name: each.max_attempts for each in client.lambdas() if each.name in names}


def show(
    tasks: "list[duly.Task]", *, as_json: bool, max_attempts: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Print tasks, a JSON object a line or a line for each thing that is worth one."""
    for place, task in enumerate(tasks):
        if as_json:
            say(json.dumps(task_as_json(task)))
        else:
            say("\n".join([""] * (place > 0) + task_lines(task, max_attempts.get(task.lambda_name))))
