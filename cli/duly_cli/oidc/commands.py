"""`duly login` and `duly logout`: who runs commands, by the identity provider of the installation."""

import os
from datetime import UTC, datetime
from typing import Annotated, NoReturn

import typer

import duly
from duly_cli.access.grants import PANEL, access_lines
from duly_cli.oidc.sign_in_file import (
    StoredSignIn,
    addresses,
    forget,
    locked,
    prepared,
    read_sign_in,
    was_exposed,
)
from duly_cli.oidc.signed_in_token import token_names_of_environment
from duly_cli.output.safe_text import say
from duly_cli.output.task_text import moment_text
from duly_cli.startup.option_values import invalid
from duly_cli.tasks.bulk import Yes, is_terminal
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, connected

_SCOPES = "openid profile email"


def add_commands(app: typer.Typer) -> None:
    """Add `login` and `logout`."""
    app.command(rich_help_panel=PANEL)(login)
    app.command(rich_help_panel=PANEL)(logout)


def login(
    address: Address = DEFAULT_ADDRESS,
    device: Annotated[
        bool, typer.Option("--device", help="Sign in on another device: this machine needs no browser.")
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_535,
            help="Where the browser brings the answer: http://127.0.0.1:PORT/callback.",
            show_default="any that is free",
        ),
    ] = 0,
    issuer: Annotated[
        str,
        typer.Option(help="The identity provider, if the Frontend does not name it.", show_default=False),
    ] = "",
    client_id: Annotated[
        str, typer.Option(help="What the provider calls this command.", show_default=False)
    ] = "",
    scopes: Annotated[
        str, typer.Option(help="What is asked for, with spaces between.", show_default=False)
    ] = "",
    yes: Yes = False,
) -> None:
    """Sign in at the identity provider of an installation: commands then call with your name and your roles.

    Your sign-in is kept in ~/.local/state/duly/sign-ins, for this address only, and renewed by itself. DULY_TOKEN counts for more.
    """
    provider = _provider(address, issuer, client_id, scopes, yes=yes)
    try:
        from duly_cli.oidc.signing_in import SignInError, sign_in  # it needs Authlib
    except ModuleNotFoundError as error:
        _end("duly login needs Authlib and aiohttp: pip install 'duly[oidc]'", os.EX_CONFIG, error)
    try:
        with locked(address):
            # A folder that cannot be written is told before somebody signs in. And what others may have read is ended before:
            # providers may end with a refresh token all sign-ins of this client, and so the next one.
            if was_exposed(address):
                _forget_exposed(address)
        stored, access = sign_in(address, provider, port=None if device else port, opens=not no_browser)
    except (SignInError, duly.CredentialsError) as error:
        _end(str(error), getattr(error, "exit_code", 1), error)
    _keep(stored)
    say(f"signed in to {address}")
    say("\n".join(access_lines(access)))
    if not stored.refresh_token:
        say(f"  until {_clock(stored.expires_at)}: this provider gives nothing to renew it with (--scopes)")
    for name in token_names_of_environment():
        say(f"duly: {name} is set, and counts for more than this sign-in: unset it", err=True)


def _forget_exposed(address: str) -> None:
    """End a sign-in that others may have read. Only under `locked`."""
    found = _readable(address)
    forget(address)
    if found is None:
        return
    problem = _revoked(found)
    say(
        f"duly: other users may have read your sign-in, which has ended{f', but {problem}' if problem else ''}",
        err=True,
    )


def logout(
    address: Address = DEFAULT_ADDRESS,
    everywhere: Annotated[
        bool, typer.Option("--all", help="At each installation where you are signed in.")
    ] = False,
) -> None:
    """Forget a sign-in, and let the provider end it if it offers that. The session of your browser there goes on."""
    names = addresses() if everywhere else [address]
    for each in names:
        _forget(each)
    if not names:
        say("duly: you are signed in nowhere", err=True)


def _forget(address: str) -> None:
    try:
        with locked(address):
            found, exposed = _readable(address), was_exposed(address)
            forget(address)
    except (duly.CredentialsError, OSError) as error:
        _end(str(error), 1, error)
    if found is None:
        say(f"duly: you are not signed in at {address}", err=True)
        return
    say(f"signed out of {address}")
    problem = _revoked(found)
    if exposed:
        problem = f"other users may have read this sign-in{f', and {problem}' if problem else ''}"
    if problem:
        say(f"duly: {problem}. Its last token is valid until {_clock(found.expires_at)}", err=True)


def _readable(address: str) -> StoredSignIn | None:
    """Return a sign-in to end it or to replace it, also one that others may have read; None: nothing can be read."""
    try:
        return read_sign_in(address, to_end_it=True)
    except duly.CredentialsError:
        return None


def _revoked(sign_in: StoredSignIn) -> str:
    """Return why the provider did not end a sign-in; empty: it did, or has nothing to end."""
    if not sign_in.refresh_token:
        return ""
    try:
        from duly_cli.oidc.signing_in import revoke
    except ModuleNotFoundError:
        return "the provider was not told: it needs pip install 'duly[oidc]'"
    return revoke(sign_in)


def _provider(address: str, issuer: str, client_id: str, scopes: str, *, yes: bool) -> "duly.SignInProvider":
    """Return where to sign in: what the options name, then what the Frontend says, then what was used before."""
    if issuer:
        from duly_core.access.issuer_metadata import issuer_problem

        if problem := issuer_problem(issuer):
            raise invalid("--issuer", problem)
    is_named = bool(issuer and client_id)
    before = None if was_exposed(address) else _readable(address)  # others may have written it
    with connected(address, signed_in=False) as client:
        _check_secrecy(address)
        try:
            known = client.sign_in_provider()
        except (duly.RequestError, duly.UnauthenticatedError, duly.PermissionDeniedError):
            if not is_named:  # an older Frontend has no such call
                raise
            known = None
        if known is None and not is_named:
            known = (
                duly.SignInProvider(before.issuer, before.client_id, before.scopes)
                if before is not None
                else None
            )
    if known is None and not is_named:
        _end(
            f"the Frontend at {address} does not say where people sign in: set auth.oidc_cli_client_id there, "
            "or name --issuer and --client-id; without an identity provider take a token (`duly tokens create`)"
        )
    if known is None:
        return duly.SignInProvider(issuer, client_id, scopes or _SCOPES)
    found = duly.SignInProvider(issuer or known.issuer, client_id or known.client_id, scopes or known.scopes)
    is_known = before is not None and (before.issuer, before.client_id) == (found.issuer, found.client_id)
    if not (is_named or is_known or yes):
        _ask(address, found)
    return found


def _check_secrecy(address: str) -> None:
    """Raise CredentialsError for a Frontend to which no token could be sent: else who is on the way names the provider."""
    from duly_wire.credentials import Credentials, check_secrecy, plaintext_is_allowed

    check_secrecy(address, Credentials.resolve(None, str), allow_plaintext=plaintext_is_allowed())


def _ask(address: str, at: "duly.SignInProvider") -> None:
    """Let the person decide who gets the sign-in: the Frontend named the provider, and gets the ID token."""
    told = (
        f"{address} sends you to {at.issuer}, as client {at.client_id}, and gets your sign-in of this client."
    )
    if not is_terminal():
        _end(
            f"{told} stdin is not a terminal, so nothing can be confirmed: add --yes, or name --issuer and --client-id",
            2,
        )
    say(told, err=True)
    typer.confirm("Sign in there?", abort=True, err=True)


def _keep(stored: StoredSignIn) -> None:
    try:
        with locked(stored.address), prepared(stored.address) as keep:
            keep(stored)
    except (OSError, duly.CredentialsError) as error:
        _end(f"you are signed in, but that cannot be kept: {error}", 1, error)


def _clock(seconds: float) -> str:
    return moment_text(datetime.fromtimestamp(seconds, UTC))


def _end(message: str, code: int = 1, error: Exception | None = None) -> NoReturn:
    say(f"duly: {message}", err=True)
    raise typer.Exit(code) from error
