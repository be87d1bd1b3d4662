"""`duly settings`: what operators change while Duly runs; `duly config` shows what processes read when they start."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

import duly
from duly.settings import Setting
from duly_cli.show import columns
from duly_cli.tasks import DEFAULT_ADDRESS, Address, AsJson, connected

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `duly settings` lists it.")]

_settings = typer.Typer(add_completion=False)


def add_commands(app: typer.Typer) -> None:
    """Add `settings` with its two verbs."""
    app.add_typer(_settings, name="settings", rich_help_panel="For operators")


@_settings.callback(invoke_without_command=True)
def list_settings(
    context: typer.Context, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False
) -> None:
    """List the settings that can be changed while Duly runs; `set` and `reset` change them, without a restart."""
    if context.invoked_subcommand is not None:
        return
    with connected(address) as client:
        found = client.settings()
    if as_json:
        for setting in found:
            typer.echo(json.dumps(_as_json(setting)))
        return
    typer.echo("\n".join(_table(found)))
    for setting in found:
        if setting.ignored_value:
            typer.echo(
                f"{setting.name}: {setting.ignored_value!r}, set by an operator, is not accepted by this release "
                "and passed over: set or reset it",
                err=True,
            )


@_settings.command("set")
def set_setting(
    name: _Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="As in the file: 500ms, true, 2000.")],
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Set one; seen by every Store Consumer within a poll interval, and kept until it is reset."""
    with connected(address) as client:
        setting = client.set_setting(name, value)
    typer.echo(f"{setting.name} = {setting.value}")


@_settings.command()
def reset(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="As `duly settings` lists them.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Let settings be again what the processes have of their own."""
    if bool(names) is everything:
        message = "say which, or --all"
        raise typer.BadParameter(message)
    failed = False
    with connected(address) as client:
        for result in client.reset_settings(names or [each.name for each in client.settings()]):
            if isinstance(result, duly.DulyError):
                failed = True
                typer.echo(f"duly: {result}", err=True)
            else:
                typer.echo(f"{result.name} = {result.value}")
    if failed:
        raise typer.Exit(1)


def _table(settings: Sequence[Setting]) -> Iterator[str]:
    rows = [
        (
            each.name,
            each.value,
            each.default_value,
            each.source.name.lower(),
            each.changed_at.strftime("%Y-%m-%d %H:%M:%SZ") if each.changed_at else "",
            each.effect,
        )
        for each in settings
    ]
    return columns(("SETTING", "VALUE", "DEFAULT", "SET BY", "SINCE", "EFFECT"), rows)


def _as_json(setting: Setting) -> dict[str, str | None]:
    return {
        "name": setting.name,
        "value": setting.value,
        "default": setting.default_value,
        "own": setting.own_value,
        "source": setting.source.name.lower(),
        "changed_at": setting.changed_at.isoformat() if setting.changed_at else None,
        "effect": setting.effect,
        "ignored": setting.ignored_value or None,
    }
