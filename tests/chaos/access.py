"""Who calls in a run in which each caller needs a token and a role: principals, their grants, and where their tokens are."""

import os
from collections.abc import Mapping
from pathlib import Path

import psycopg

from duly_core.access.roles import Role
from duly_core.access.tokens import new_token

OPERATOR, CLIENT, HOST, AUDITOR, STRANGER = "operator", "client", "host", "auditor", "stranger"

_OURS, _FOREIGN, _ALL = "chaos.*", "foreign.*", "*"
GRANTS: Mapping[str, tuple[tuple[Role, str], ...]] = {
    OPERATOR: ((Role.OPERATOR, _ALL),),
    # it also makes time tables and purges
    CLIENT: ((Role.CLIENT, _OURS), (Role.OWNER, _OURS)),
    # it also declares its lambdas
    HOST: ((Role.HOST, _OURS), (Role.OWNER, _OURS)),
    AUDITOR: ((Role.AUDITOR, _ALL),),
    # everything that there is, of other lambdas
    STRANGER: ((Role.CLIENT, _FOREIGN), (Role.OWNER, _FOREIGN), (Role.HOST, _FOREIGN)),
}
"""The roles of each principal."""

_ADD_TOKEN = """
insert into access_token (digest, token_id, principal, note, created_at, created_by)
values (%s, %s, %s, '', duly_now(), 'chaos')
"""
_ADD_GRANT = """
insert into role_grant (principal, role, pattern, granted_at, granted_by) values (%s, %s, %s, duly_now(), 'chaos')
"""


class Tokens:
    """The tokens of a run; none where nobody is asked who they are."""

    def __init__(self, folder: Path, *, needed: bool) -> None:
        self._folder = folder
        self._needed = needed
        self._tokens: dict[str, str] = {}

    def make(self, dsn: str) -> None:
        """Write them and the grants, as who may write into the store can."""
        if not self._needed:
            return
        self._folder.mkdir(mode=0o700)
        with psycopg.connect(dsn) as connection:
            for principal, grants in GRANTS.items():
                token_id, token, digest = new_token()
                connection.execute(_ADD_TOKEN, (digest, token_id, principal))
                for role, pattern in grants:
                    connection.execute(_ADD_GRANT, (principal, str(role), pattern))
                self._tokens[principal] = token
                opened = os.open(self.file(principal), os.O_WRONLY | os.O_CREAT, 0o600)
                with os.fdopen(opened, "w") as file:
                    file.write(token)
            connection.execute("update access_version set version = version + 1")

    def file(self, principal: str) -> str:
        """Return the file with a principal's token; empty: it needs none."""
        return str(self._folder / principal) if self._needed else ""

    def token(self, principal: str) -> str | None:
        """Return a principal's token; None: it needs none."""
        return self._tokens.get(principal)
