"""`duly tokens`: what callers show to say who they are."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import duly
from duly_cli.access.grants import PANEL
from duly_cli.access.secret_file import secret_file
from duly_cli.output.colour import status_style
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.option_values import invalid, parse_duration
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

Lifetime = Annotated[
    str | None,
    typer.Option(help="How long it is valid: 12h, 90d.", show_default="until it is revoked"),
]
Note = Annotated[str, typer.Option(help="For people: what the token is for.")]
ToFile = Annotated[
    Path | None,
    typer.Option(
        "--to-file", help="Write the token there (mode 0600) and do not show it.", show_default=False
    ),
]

_tokens = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `tokens` with its verbs."""
    app.add_typer(
        _tokens,
        name="tokens",
        rich_help_panel=PANEL,
        help="Make, list and revoke tokens. A token says which principal a caller is.",
    )


@_tokens.command("create")
def create_token(
    principal: Annotated[
        str, typer.Argument(metavar="PRINCIPAL", help="Who the token stands for, such as shop.")
    ],
    lifetime: Lifetime = None,
    note: Note = "",
    to_file: ToFile = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, once: Duly keeps only its SHA-256. `duly grants` gives its principal roles."""
    valid = parse_duration(lifetime, "--lifetime")

    def make() -> "duly.NewToken":
        return client.create_token(principal, lifetime=valid, note=note)

    with connected(address) as client:
        hand_over(make, principal, to_file, as_json=as_json)


@_tokens.command("list")
def list_tokens(
    principal: Annotated[str, typer.Option(help="Of this principal only.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Revoked and expired ones, too.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the tokens, the newest first, without their secrets."""
    with connected(address) as client:
        found = [
            each
            for each in client.tokens()
            if principal in ("", each.principal) and (everything or _state(each) == "valid")
        ]
    show_all(found, _table, _as_json, as_json=as_json)


@_tokens.command("get", hidden=True)
@_tokens.command("show")
def show_token(
    token_id: Annotated[
        str, typer.Argument(metavar="TOKEN_ID", help="As `duly tokens list` shows it, without its secret.")
    ],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show a token without its secret; revoked and expired ones, too."""
    with connected(address) as client:
        unknown = f"there is no token {token_id!r}: `duly tokens list --all` has all of them"
        found = one_of(client.tokens(), lambda each: each.token_id == token_id, unknown)
    show_all([found], _table, _as_json, as_json=as_json)


@_tokens.command("revoke")
def revoke_tokens(
    token_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="TOKEN_ID...", help="As `duly tokens list` shows them: the middle of duly_ID_SECRET."
        ),
    ],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Refuse tokens from now on, within two seconds; exit 1 if one was not valid."""
    with connected(address) as client:
        revoked = client.revoke_tokens(token_ids)
    for token_id in token_ids:
        if as_json:
            say(json.dumps({"token_id": token_id, "revoked": token_id in revoked}))
        elif token_id in revoked:
            say(f"{token_id}: revoked")
        else:
            say(f"{token_id}: no such token, or it was revoked before", err=True)
    if set(token_ids) - set(revoked):
        raise typer.Exit(1)


def hand_over(
    make: "Callable[[], duly.NewToken]", principal: str, to_file: Path | None, *, as_json: bool
) -> None:
    """Make a token, and give it to whoever asked: on stdout alone, or in a file."""
    if to_file is None:
        made = make()
        say(json.dumps({"token": made.token, "token_id": made.token_id}) if as_json else made.token)
        if not as_json:
            say(f"duly: token {made.token_id} of {principal}; it is shown only now", err=True)
        return
    try:
        with secret_file(to_file) as write:
            made = make()
            write(made.token)
    except duly.DulyError:  # a Frontend that does not answer is an OSError, too
        raise
    except OSError as error:
        raise invalid("--to-file", f"{to_file} cannot be written: {error.strerror}") from error
    if as_json:
        say(json.dumps({"file": str(to_file), "token_id": made.token_id}))
    else:
        say(f"token {made.token_id} of {principal}: written to {to_file}")


def _as_json(token: "duly.Token") -> dict[str, Any]:
    return as_object(token, state=_state(token))


def _state(token: "duly.Token") -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= datetime.now(UTC) else "valid"


def _table(tokens: "Iterable[duly.Token]") -> Iterator[str]:
    rows = [
        (
            each.token_id,
            each.principal,
            _state(each),
            moment_text(each.created_at),
            each.created_by,
            moment_text(each.expires_at),
            each.note,
        )
        for each in tokens
    ]
    if not rows:
        return iter(["no tokens: `duly tokens create PRINCIPAL` makes one"])
    heads = ("TOKEN ID", "PRINCIPAL", "STATE", "MADE AT", "MADE BY", "EXPIRES AT", "NOTE")
    return columns(
        heads, rows, left_out_first=("MADE BY", "MADE AT", "STATE"), styles={"STATE": status_style}
    )
