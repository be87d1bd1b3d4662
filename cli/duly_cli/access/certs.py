"""`duly certs`: an authority and certificates for development."""

import re
from pathlib import Path
from typing import Annotated

import typer

from duly_cli.access.grants import PANEL
from duly_cli.output.safe_text import say
from duly_cli.startup.option_values import invalid, parse_duration

_SERVER = "server"
_OF_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Added to the servers' certificate: health checks come from there."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9.:_-]{0,253}[A-Za-z0-9])?|::1?")


def add_command(app: typer.Typer) -> None:
    """Add `certs`."""
    app.command(rich_help_panel=PANEL)(certs)


def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go, such as ./certs.")],
    server: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or IP address by which clients reach the servers; may be repeated.",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(help="Make a certificate for this principal; may be repeated.", show_default=False),
    ] = None,
    lifetime: Annotated[str, typer.Option(help="How long they are valid.")] = "365d",
) -> None:
    """Make an authority and certificates signed by it, and say what to set. For development: the authority's key is not encrypted.

    An authority that is there signs, and is never replaced; certificates that are there are renewed.
    """
    valid = parse_duration(lifetime, "--lifetime")
    hosts, names = server or [], client or []
    if not hosts and not names:
        raise invalid("--server", "name the servers' hosts, or --client NAME")
    _check(hosts, names)
    try:
        from duly_local.certificates import make_authority, make_certificate
    except ModuleNotFoundError as error:
        say("duly certs: it needs the package cryptography: pip install 'duly[local]'", err=True)
        raise typer.Exit(1) from error
    assert valid is not None  # noqa: S101 (there is a default)
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists() != key.exists():
        lost = key if certificate.exists() else certificate
        raise invalid(
            "DIR",
            f"{lost} is missing, and an authority is never replaced: bring it back, or name another folder",
        )
    try:
        is_new = not certificate.exists()
        make_authority(folder, valid)
        if hosts:
            make_certificate(folder, _SERVER, [*dict.fromkeys([*hosts, *_OF_THIS_MACHINE])], valid)
        for name in names:
            make_certificate(folder, name, [], valid)
    except (OSError, ValueError, TypeError) as error:
        say(f"duly certs: {error}", err=True)
        raise typer.Exit(1) from error
    say("\n".join(_advice(folder.absolute(), hosts, names, is_new=is_new)))


def _check(hosts: list[str], names: list[str]) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise invalid("--server", f"{host!r} is no host: write a name or an IP address, without a port")
    for name in names:
        if not _NAME.fullmatch(name):
            raise invalid("--client", f"{name!r}: write letters, digits, dots, dashes, at most 64")
        if name in ("ca", _SERVER):
            raise invalid("--client", f"{name!r} is the name of other files: choose another")


def _advice(folder: Path, hosts: list[str], names: list[str], *, is_new: bool) -> list[str]:
    made = "an authority" if is_new else "certificates of the authority that was there"
    lines = [f"{folder} has {made}. Keep ca.key to yourself: who has it can make certificates."]
    if hosts:
        lines += [
            "",
            "# servers, which clients reach as " + ", ".join(hosts),
            f"export DULY_RPC_CERT_FILE={folder / 'server.pem'}",
            f"export DULY_RPC_KEY_FILE={folder / 'server.key'}",
            "# clients and workers",
            f"export DULY_RPC_CA_FILE={folder / 'ca.pem'}",
        ]
    if names:
        lines += [
            "",
            "# servers that ask each caller for a certificate",
            "export DULY_RPC_CLIENT_CERTIFICATES=required",
            f"export DULY_RPC_CA_FILE={folder / 'ca.pem'}",
        ]
    for name in names:
        lines += [
            f"# {name}",
            f"export DULY_RPC_CERT_FILE={folder / name}.pem",
            f"export DULY_RPC_KEY_FILE={folder / name}.key",
        ]
    return lines
