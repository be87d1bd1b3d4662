"""The part of AsyncClient that is about access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from duly.access.views import Access, AuditEvent, Grant, NewToken, SignInProvider, Token, grants_to_fields
from duly.tasks.new_task import aware
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import access_pb2

_MOST_IN_A_CALL = 1_000


class AccessCalls(ClientPart):
    """Reads and changes roles and tokens, and reads the audit log."""

    async def access(self) -> Access:
        """Return who the server takes this client for, and its roles. Raises UnauthenticatedError."""
        caller = self._caller
        response = await caller.call(caller.access.GetAccess, access_pb2.GetAccessRequest())
        grants = tuple(map(Grant.from_proto, response.grants))
        return Access(response.principal, grants, tuple(response.groups))

    async def sign_in_provider(self) -> SignInProvider | None:
        """Return where people sign in for commands; None: this server takes no sign-in. Needs no token."""
        caller = self._caller
        response = await caller.call(caller.access.GetSignIn, access_pb2.GetSignInRequest())
        if not response.issuer:
            return None
        return SignInProvider(response.issuer, response.client_id, response.scopes)

    async def grants(self, principal: str = "") -> list[Grant]:
        """Return all grants, or those of one principal. Raises PermissionDeniedError."""
        caller = self._caller
        request = access_pb2.ListGrantsRequest(principal=principal)
        response = await caller.call(caller.access.ListGrants, request)
        return [Grant.from_proto(each) for each in response.grants]

    async def add_grants(self, grants: Iterable[Grant]) -> int:
        """Give roles, and return how many are new. Each call of up to 1,000 is written as a whole, or not at all.

            await client.add_grants([duly.Grant("shop", duly.Role.CLIENT, "mail.*")])

        In force within two seconds. Raises InvalidTaskError, PermissionDeniedError.
        """
        caller = self._caller
        added = 0
        for fields in _in_calls(grants_to_fields(grants)):
            request = access_pb2.AddGrantsRequest(grants=[access_pb2.Grant(**each) for each in fields])
            response = await caller.call(caller.access.AddGrants, request)
            _check(response.results, fields)
            added += response.added
        return added

    async def remove_grants(self, grants: Iterable[Grant]) -> int:
        """Take roles away, and return how many there were; unknown ones are ignored. Otherwise as `add_grants`."""
        caller = self._caller
        removed = 0
        for fields in _in_calls(grants_to_fields(grants)):
            request = access_pb2.RemoveGrantsRequest(grants=[access_pb2.Grant(**each) for each in fields])
            response = await caller.call(caller.access.RemoveGrants, request)
            _check(response.results, fields)
            removed += response.removed
        return removed

    async def create_token(
        self, principal: str, *, lifetime: timedelta | None = None, note: str = ""
    ) -> NewToken:
        """Make a token that says its bearer is `principal`. Nobody can read it later: store it now.

        - `lifetime`: 1 minute to 10 years; None is until it is revoked.
        - `note`: for people.

        It is valid within two seconds, and has the roles of its principal. If the answer is lost and the call is
        repeated, a second token may be made: `tokens` lists both. Raises InvalidTaskError, PermissionDeniedError.
        """
        caller = self._caller
        request = access_pb2.CreateTokenRequest(principal=principal, note=note)
        if lifetime is not None:
            request.lifetime.CopyFrom(to_duration(lifetime))
        response = await caller.call(caller.access.CreateToken, request)
        return NewToken(response.token, response.token_id)

    async def tokens(self) -> list[Token]:
        """Return all tokens, the newest first, without their secrets. Raises PermissionDeniedError."""
        caller = self._caller
        response = await caller.call(caller.access.ListTokens, access_pb2.ListTokensRequest())
        return [Token.from_proto(each) for each in response.tokens]

    async def revoke_tokens(self, token_ids: Iterable[str]) -> list[str]:
        """Refuse tokens from now on, within two seconds; return the ids of those that were not revoked before.

        Raises InvalidTaskError, PermissionDeniedError.
        """
        if isinstance(token_ids, str):
            raise TypeError(f"give a list of token ids: [{token_ids!r}]")
        caller = self._caller
        revoked: list[str] = []
        for ids in _in_calls([*token_ids]):
            request = access_pb2.RevokeTokensRequest(token_ids=ids)
            revoked += (await caller.call(caller.access.RevokeTokens, request)).revoked
        return revoked

    async def audit_events(
        self,
        *,
        actor: str = "",
        method: str = "",
        mentions: str = "",
        since: datetime | None = None,
        refused: bool = False,
        page_size: int = 100,
    ) -> AsyncIterator[AuditEvent]:
        """Yield who changed what, and who was refused, the newest first; what is left out is not filtered by.

        - `actor`: of this principal. `method`: such as CancelTask.
        - `mentions`: whose request has this text, such as a task's id or a lambda's name.
        - `since`: not older. `refused`: only calls that were refused for want of a token or a role.

        Raises PermissionDeniedError.
        """
        pages = self.audit_event_pages(
            actor=actor, method=method, mentions=mentions, since=since, refused=refused, page_size=page_size
        )
        async for page in pages:
            for event in page:
                yield event

    async def audit_event_pages(
        self,
        *,
        actor: str = "",
        method: str = "",
        mentions: str = "",
        since: datetime | None = None,
        refused: bool = False,
        page_size: int = 100,
    ) -> AsyncIterator[list[AuditEvent]]:
        """Yield what `audit_events` yields a page at a time; `page_size` is 1 to 1,000."""
        caller = self._caller
        request = access_pb2.ListAuditEventsRequest(
            actor=actor, method=method, mentions=mentions, refused=refused, page_size=page_size
        )
        if since is not None:
            request.since.CopyFrom(to_timestamp(aware("since", since)))
        async for page in caller.pages(caller.access.ListAuditEvents, request):
            yield [AuditEvent.from_proto(each) for each in page.events]


def _in_calls(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), _MOST_IN_A_CALL):
        yield items[start : start + _MOST_IN_A_CALL]


def _check(results: Iterable[access_pb2.GrantResult], asked: list[dict[str, Any]]) -> None:
    """Raise the first error, and name its grant: nothing of the call was written."""
    for result, grant in zip(results, asked, strict=True):
        if result.HasField("error"):
            error = error_mapping.from_item(result.error)
            error.add_note(
                f"in the grant of {grant['principal']!r} for {grant['pattern']!r}; nothing of this call was written"
            )
            raise error
