"""A server with TLS and roles, two principals that share nothing but the server, and a console."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import grpc
import psycopg

from duly_core.access.roles import Role
from duly_core.access.tokens import new_token
from duly_local.certificates import AUTHORITY, make_authority, make_certificate
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import CONSOLE, Ports, StackOptions
from duly_local.stack import LocalStack

VICTIM, ATTACKER = "victim", "attacker"
_READY_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Installation:
    """Where its parts are, and what a principal shows."""

    frontend: str
    console: str
    authority: Path
    tokens: Mapping[str, str]

    def channel(self) -> grpc.aio.Channel:
        """Open a connection of its own to the Frontend."""
        credentials = grpc.ssl_channel_credentials(self.authority.read_bytes())
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        return grpc.aio.secure_channel(self.frontend, credentials, options)

    def metadata(self, principal: str) -> Sequence[tuple[str, str]]:
        """Return what a call of a principal shows."""
        return (("authorization", f"Bearer {self.tokens[principal]}"),)


@asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[Installation]:
    """Start it in this folder; stop it."""
    certificates = folder / "certs"
    make_authority(certificates)
    make_certificate(certificates, "server", ["127.0.0.1", "localhost"], timedelta(days=1))
    authority = certificates / f"{AUTHORITY}.pem"
    os.environ |= {
        "DULY_AUTH_MODE": "required",
        "DULY_RPC_CA_FILE": str(authority),
        "DULY_RPC_CERT_FILE": str(certificates / "server.pem"),
        "DULY_RPC_KEY_FILE": str(certificates / "server.key"),
    }
    options = StackOptions(data_directory=folder / "data", ports=Ports.free(()), console=True)
    with (folder / "duly.log").open("ab") as log:
        stack = LocalStack(options, MergedOutput(log), SupervisionTiming(ready_within=_READY_WITHIN))
        async with stack:
            yield Installation(
                stack.frontend_address,
                stack.ports.address(CONSOLE),
                authority,
                {name: _principal(stack.dsn, name) for name in (VICTIM, ATTACKER)},
            )


def _principal(dsn: str, name: str) -> str:
    """Make a principal that may do all that clients, owners and hosts do with its own lambdas; return its token."""
    token_id, token, digest = new_token()
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into access_token (digest, token_id, principal, note, created_at, created_by) "
            "values (%s, %s, %s, '', duly_now(), 'bench')",
            (digest, token_id, name),
        )
        for role in (Role.CLIENT, Role.OWNER, Role.HOST):
            connection.execute(
                "insert into role_grant (principal, role, pattern, granted_at, granted_by) "
                "values (%s, %s, %s, duly_now(), 'bench')",
                (name, str(role), f"{name}.*"),
            )
        connection.execute("update access_version set version = version + 1")
    return token
