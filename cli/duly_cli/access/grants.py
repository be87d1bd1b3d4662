"""`duly grants` and `duly whoami`: who may do what."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

import duly
from duly_cli.access.grants_file import read_grants
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import say
from duly_cli.output.table import columns
from duly_cli.startup.nouns import Noun, UnknownNameError
from duly_cli.startup.option_values import invalid, parse_member
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

PANEL = "Access"

_GROUP = "group:"
_MOST_GROUPS = 20
"""Of those without a role, in the text for people."""

_Principal = Annotated[
    str,
    typer.Argument(metavar="PRINCIPAL", help="The name in a token or certificate, oidc:NAME or group:NAME."),
]
_Role = Annotated[
    str, typer.Argument(metavar="ROLE", help="client, owner, host, operator or auditor.", show_default=False)
]
_Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN...",
        help="Lambdas: mail.send, 'mail.*', or '*' for all (in quotes, or the shell reads it).",
        show_default=False,
    ),
]

_grants = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `whoami`, and `grants` with its verbs."""
    app.command(rich_help_panel=PANEL)(whoami)
    app.add_typer(
        _grants, name="grants", rich_help_panel=PANEL, help="Give roles, take them away, list them."
    )


def whoami(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show who the server takes you for, and your roles."""
    with connected(address) as client:
        access = client.access()
    if as_json:
        say(json.dumps(as_object(access)))
    elif not access.principal:
        say("auth.mode = none: callers are not identified, and everybody may do everything")
    else:
        say("\n".join(access_lines(access)))


def access_lines(access: "duly.Access") -> list[str]:
    """Return who somebody is, and the roles, for people."""
    return [access.principal, *_roles(access), *_groups_without_role(access)]


def _roles(access: "duly.Access") -> list[str]:
    if not access.grants:
        return ["  no roles: an operator can give some (duly grants add)"]
    return [
        f"  {each.role.name.lower()} of {each.pattern}"
        + (f" (by {each.principal})" if each.principal != access.principal else "")
        for each in access.grants
    ]


def _groups_without_role(access: "duly.Access") -> list[str]:
    granted = {each.principal for each in access.grants}
    left = [each for each in access.groups if f"{_GROUP}{each}" not in granted]
    more = f" and {len(left) - _MOST_GROUPS} more" if len(left) > _MOST_GROUPS else ""
    return [f"  groups without a role: {', '.join(left[:_MOST_GROUPS])}{more}"] if left else []


@_grants.command("list")
def list_grants(
    principal: Annotated[str, typer.Option(help="Of this principal only.")] = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List who has which role for which lambdas."""
    with connected(address) as client:
        found = client.grants(principal)
    show_all(found, _table, as_object, as_json=as_json)


@_grants.command("get", hidden=True)
@_grants.command("show")
def show_grants(principal: _Principal, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show the roles of a principal; exit 1 if it has none."""
    with connected(address) as client:
        found = client.grants(principal)
        if not found:
            message = f"{principal!r} has no role: `duly grants list` has everybody's"
            raise UnknownNameError(message)
    show_all(found, _table, as_object, as_json=as_json)


@_grants.command("add")
def add_grants(
    principal: _Principal,
    role: _Role,
    patterns: _Patterns,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Give a role. In force within two seconds."""
    grants = _grants_of(principal, role, patterns)
    with connected(address) as client:
        added = client.add_grants(grants)
    if as_json:
        say(json.dumps({"added": added}))
        return
    for each in grants:
        say(str(each))
    if not added:
        say("duly: nothing is new", err=True)


@_grants.command("remove", hidden=True)
@_grants.command("delete")
def delete_grants(
    principal: _Principal,
    role: _Role,
    patterns: _Patterns,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Take a role away, within two seconds; exit 1 if there was no such grant. Give the pattern as `duly grants list` shows it."""
    grants = _grants_of(principal, role, patterns)
    with connected(address) as client:
        removed = client.remove_grants(grants)
    if as_json:
        say(json.dumps({"removed": removed}))
    else:
        say(f"{removed} of {len(grants)} removed")
    if not removed:
        raise typer.Exit(1)


@_grants.command("apply")
def apply_grants(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML, with a table [[grant]] for each role.")],
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Take away what the file does not have. Never your own role of operator."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Give the roles that a file has: a line for each change. Nothing is written unless all of the file is valid.

    [[grant]]  principal = "shop"  role = "client"  patterns = ["mail.*", "report.make"]
    """
    try:
        wanted = set(read_grants(file))
    except (OSError, ValueError) as error:
        raise invalid("FILE", f"{file}: {error}; nothing was changed") from error
    with connected(address) as client:
        present = set(client.grants())
        new, gone = sorted(wanted - present), sorted(present - wanted) if prune else []
        _keep_my_own(client, gone)
        for sign, grants in (("+", new), ("-", gone)):
            for each in grants:
                say(json.dumps({"change": sign} | as_object(each)) if as_json else f"{sign} {each}")
        if not dry_run:  # what is new first: nobody loses a role that gets another pattern
            client.add_grants(new)
            client.remove_grants(gone)
    if as_json:
        return
    verb = "would be " if dry_run else ""
    others = len(present - wanted) - len(gone)
    left = f"; {others} not in the file stay (--prune takes them away)" if others else ""
    say(f"{len(new)} {verb}added, {len(gone)} {verb}removed{left}")


def _keep_my_own(client: "duly.Client", gone: "Iterable[duly.Grant]") -> None:
    """Refuse to take away what the rest of this call, and the next, need."""
    access = client.access()
    mine = {access.principal, *(f"{_GROUP}{each}" for each in access.groups)}
    for each in gone:
        if each.principal in mine and each.role is duly.Role.OPERATOR:
            raise invalid(
                "--prune",
                f"would take away that you are operator of {each.pattern}: add it to the file; nothing was changed",
            )


def _grants_of(principal: str, role: str, patterns: Iterable[str]) -> "list[duly.Grant]":
    kind = parse_member("ROLE", role, duly.Role, "a role")
    return [duly.Grant(principal, kind, pattern) for pattern in patterns]


def _table(grants: "Iterable[duly.Grant]") -> Iterator[str]:
    rows = [(each.principal, each.role.name.lower(), each.pattern) for each in grants]
    if not rows:
        return iter(["no grants: `duly grants add PRINCIPAL ROLE PATTERN` makes one"])
    return columns(("PRINCIPAL", "ROLE", "LAMBDAS"), rows)
