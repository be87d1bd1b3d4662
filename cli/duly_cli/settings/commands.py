"""`duly settings`: what operators change while Duly runs; `duly config` shows what processes read when they start."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_wire.enums import SettingSource

if TYPE_CHECKING:  # it loads gRPC, which `duly up` does not need
    from duly.settings.calls import Setting

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `duly settings` lists it.")]

_SOURCES = {
    SettingSource.DEFAULT: "default",
    SettingSource.CONFIGURATION: "environment or file",
    SettingSource.OPERATOR: "set while running",
}

_settings = Verbs(
    add_completion=False,
    cls=Noun,
    help="List what can be changed while Duly runs; set and reset it, without a restart.",
)


def add_commands(app: typer.Typer) -> None:
    """Add `settings` with its verbs."""
    app.add_typer(_settings, name="settings", rich_help_panel="For operators")


@_settings.command("list")
def list_settings(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the settings that can be changed while Duly runs; `set` and `reset` change them, without a restart."""
    with connected(address) as client:
        found = client.settings()
    _show(found, as_json=as_json)


@_settings.command("get", hidden=True)
@_settings.command()
def show(name: _Name, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show one setting: its value, where that comes from, and what it does."""
    with connected(address) as client:
        found = one_of(client.settings(), lambda each: each.name == name, f"no setting is called {name!r}")
    _show([found], as_json=as_json)


def _show(found: "Sequence[Setting]", *, as_json: bool) -> None:
    show_all(found, _table, _as_json, as_json=as_json)
    if as_json:
        return
    for setting in found:
        if setting.users > setting.users_with_it:
            say(_missing(setting), err=True)
        if setting.ignored_value:
            say(
                f"{setting.name}: {setting.ignored_value!r}, set by an operator, is not accepted by this release "
                "and passed over: set or reset it",
                err=True,
            )


@_settings.command("set")
def set_setting(
    name: _Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="As in the file: 500ms, true, 2000.")],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Change one setting, without a restart: the processes that use it take it within a poll interval, or a second. It holds until it is reset."""
    with connected(address) as client:
        _say(client.set_setting(name, value), as_json=as_json)


@_settings.command()
def reset(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="As `duly settings` lists them.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Undo `set`: back to what the environment or the file of the processes says, else to the default."""
    if bool(names) is everything:
        message = "say which, or --all"
        raise typer.BadParameter(message)
    failed = False
    with connected(address) as client:
        known = [each.name for each in client.settings()]
        # The Frontend answers each name for itself. Asked for the unknown ones alone it changes nothing.
        unknown = [name for name in names or () if name not in known]
        for result in client.reset_settings(unknown or names or known):
            if isinstance(result, duly.DulyError):
                failed = True
                say(f"duly: nothing was reset: {result}", err=True)
            else:
                _say(result, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def _say(setting: "Setting", *, as_json: bool) -> None:
    say(json.dumps(_as_json(setting)) if as_json else f"{setting.name} = {setting.value}")


def _missing(setting: "Setting") -> str:
    """Say who has not read a change yet."""
    named = ", ".join(setting.users_without_it)
    more = setting.users - setting.users_with_it - len(setting.users_without_it)
    return (
        f"{setting.name}: {setting.users_with_it} of {setting.users} processes and hosts have it; not yet (or not reported yet): {named}"
        + (f" and {more} more" if more else "")
    )


def _table(settings: "Sequence[Setting]") -> Iterator[str]:
    rows = [
        (
            each.name,
            each.value,
            each.default_value,
            _SOURCES[each.source] + (f", {each.users_with_it} of {each.users} have it" if each.users else ""),
            moment_text(each.changed_at),
            each.used_by,
            each.effect,
        )
        for each in settings
    ]
    return columns(("SETTING", "VALUE", "DEFAULT", "COMES FROM", "SET AT", "USED BY", "WHAT IT DOES"), rows)


def _as_json(setting: "Setting") -> dict[str, str | None]:
    return as_object(
        setting,
        left_out=["default_value", "own_value", "ignored_value"],
        default=setting.default_value,
        own=setting.own_value,
        ignored=setting.ignored_value or None,
    )
