"""Access: who a caller is, which roles it has, and what the audit log says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly.errors import InvalidTaskError
from duly.transport.enum_members import member
from duly.transport.message_fields import view
from duly_wire.enums import Role

if TYPE_CHECKING:
    from duly_wire.v1 import access_pb2


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A role of a principal for the lambdas of a pattern: a name, a prefix that ends with `*`, or `*` alone.

    >>> str(Grant("shop", Role.CLIENT, "mail.*"))
    'shop is client of mail.*'
    """

    principal: str
    role: Role
    pattern: str = "*"

    @classmethod
    def from_proto(cls, grant: access_pb2.Grant) -> Grant:
        """Return the view of a grant as it came over the wire."""
        return view(cls, grant)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of its message. Raises InvalidTaskError for a role that is unknown."""
        return {
            "principal": self.principal,
            "role": member("role", self.role, Role),
            "pattern": self.pattern,
        }

    def __str__(self) -> str:
        return f"{self.principal} is {self.role.name.lower()} of {self.pattern}"


@dataclass(frozen=True, slots=True)
class Access:
    """Who the server takes a caller for, and its roles."""

    # Empty: the server does not identify callers.
    principal: str
    # Those of a group have the principal `group:NAME`.
    grants: tuple[Grant, ...] = ()
    # Of a person that an identity provider signed in, as the provider names them.
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignInProvider:
    """Where people sign in for commands (OpenID Connect): a client without a secret."""

    issuer: str
    client_id: str
    # With spaces between them.
    scopes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, without its secret."""

    token_id: str
    principal: str
    note: str
    created_at: datetime
    # Who made it; empty: nobody was asked.
    created_by: str
    # None: it is valid until it is revoked.
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def from_proto(cls, token: access_pb2.Token) -> Token:
        """Return the view of a token as it came over the wire."""
        return view(cls, token)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. Duly keeps only its SHA-256: store it now."""

    token: str
    token_id: str

    def __repr__(self) -> str:
        return f"NewToken(token_id={self.token_id!r})"  # a token is not to get into logs


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """A call that changed something, or that was refused."""

    event_id: int
    at: datetime
    # The principal; empty: the server does not identify callers, or the caller did not say.
    actor: str
    # Where the call came from, as gRPC writes it: ipv4:10.0.0.7:51234.
    peer: str
    # Such as FrontendService/CancelTask.
    method: str
    # OK, or the call's status, such as PERMISSION_DENIED. NOTHING_DONE: each item of the answer has an error. PARTLY_DONE: some
    # have. DRY_RUN: it only counted.
    outcome: str
    # What the request named, without payloads; None: it was not read.
    request: Any
    # What was answered; None: the call was refused.
    answer: Any

    @classmethod
    def from_proto(cls, event: access_pb2.AuditEvent) -> AuditEvent:
        """Return the view of an event as it came over the wire."""
        return view(cls, event, request=_parsed(event.request), answer=_parsed(event.answer))


def _parsed(text: str) -> Any:
    return json.loads(text) if text else None


def grants_to_fields(grants: Any) -> list[dict[str, Any]]:
    """Return the fields of the messages of grants. Raises InvalidTaskError for what is no list of grants."""
    if isinstance(grants, Grant):
        raise InvalidTaskError(f"grants must be a list: [{grants!r}]", "grants")
    asked = [*grants]
    for each in asked:
        if not isinstance(each, Grant):
            raise InvalidTaskError(f"grants: give duly.Grant, not {type(each).__name__}", "grants")
    return [each.to_fields() for each in asked]
