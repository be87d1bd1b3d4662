"""AccessService: gives and takes roles and tokens."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

from duly_core.access import store as store_access
from duly_core.access.audit_log import list_events
from duly_core.access.current import current_access, require
from duly_core.access.grants import MOST_GRANTS, Grant, pattern_problem
from duly_core.access.principal import GROUP, LONGEST_NAME, PERSON, group_principal, is_reserved
from duly_core.access.roles import Action, Role
from duly_core.access.settings import AuthSettings
from duly_core.access.tokens import new_token
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_count, check_text, page_size, read_duration, read_instant
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import access_pb2, access_pb2_grpc

_MOST = 1_000
_LONGEST_NOTE = 1_024
_LIFETIMES = timedelta(minutes=1), timedelta(days=3650)
_NEWEST = 2**62

_ROLES = {
    access_pb2.ROLE_CLIENT: Role.CLIENT,
    access_pb2.ROLE_OWNER: Role.OWNER,
    access_pb2.ROLE_HOST: Role.HOST,
    access_pb2.ROLE_OPERATOR: Role.OPERATOR,
    access_pb2.ROLE_AUDITOR: Role.AUDITOR,
}
_ROLES_TO_WIRE = {role: number for number, role in _ROLES.items()}


class AccessServicer(access_pb2_grpc.AccessServiceServicer):
    """Who may grant for a pattern grants no more than that: an operator of `mail.*` makes no operator of `*`."""

    def __init__(self, store: Store, auth: AuthSettings) -> None:
        self._store = store
        self._auth = auth

    async def GetAccess(  # noqa: N802 (the wire's name)
        self, _request: access_pb2.GetAccessRequest, _context: Context
    ) -> access_pb2.GetAccessResponse:
        access = current_access()
        held = [access.principal, *map(group_principal, access.groups)]
        grants = await store_access.list_grants(self._store, *held) if access.principal else []
        return access_pb2.GetAccessResponse(
            principal=access.principal, grants=map(_to_wire, grants), groups=access.groups
        )

    async def GetSignIn(  # noqa: N802
        self, _request: access_pb2.GetSignInRequest, _context: Context
    ) -> access_pb2.GetSignInResponse:
        auth = self._auth
        if auth.mode == "none" or not auth.oidc_cli_client_id:
            return access_pb2.GetSignInResponse()
        return access_pb2.GetSignInResponse(
            issuer=auth.oidc_issuer, client_id=auth.oidc_cli_client_id, scopes=auth.oidc_cli_scopes
        )

    async def AddGrants(  # noqa: N802
        self, request: access_pb2.AddGrantsRequest, _context: Context
    ) -> access_pb2.AddGrantsResponse:
        grants, results = read_grants(request.grants)
        added = 0
        if len(grants) == len(results):
            try:
                added = await store_access.add_grants(self._store, grants, current_access().principal)
            except store_access.TooManyGrantsError as error:
                problem = Problem(
                    "grants",
                    f"{error.principal!r} would have more than {MOST_GRANTS} grants"
                    f" {f'in the namespace {error.namespace!r}' if error.namespace else 'outside of namespaces'}:"
                    " grant a pattern such as `mail.*` in place of single lambdas",
                ).to_wire()
                results = [access_pb2.GrantResult(error=problem) for _ in results]
        return access_pb2.AddGrantsResponse(results=results, added=added)

    async def RemoveGrants(  # noqa: N802
        self, request: access_pb2.RemoveGrantsRequest, _context: Context
    ) -> access_pb2.RemoveGrantsResponse:
        grants, results = read_grants(request.grants)
        removed = 0
        if len(grants) == len(results):
            removed = await store_access.remove_grants(self._store, grants)
        return access_pb2.RemoveGrantsResponse(results=results, removed=removed)

    async def ListGrants(  # noqa: N802
        self, request: access_pb2.ListGrantsRequest, _context: Context
    ) -> access_pb2.ListGrantsResponse:
        check_text("principal", request.principal, LONGEST_NAME)
        grants = await store_access.list_grants(self._store, *filter(None, [request.principal]))
        return access_pb2.ListGrantsResponse(grants=map(_to_wire, grants))

    async def CreateToken(  # noqa: N802
        self, request: access_pb2.CreateTokenRequest, _context: Context
    ) -> access_pb2.CreateTokenResponse:
        require(Action.GRANT, EVERYTHING)
        check_text("principal", request.principal, LONGEST_NAME, least=1)
        if is_reserved(request.principal):
            raise Problem(
                "principal",
                f"{request.principal!r} is reserved for Duly itself, people or groups: choose another name",
            )
        check_text("note", request.note, _LONGEST_NOTE)
        lifetime = None
        if request.HasField("lifetime"):
            lifetime = read_duration("lifetime", request.lifetime, _LIFETIMES[1], least=_LIFETIMES[0])
        token_id, token, digest = new_token()
        await store_access.add_token(
            self._store,
            digest,
            token_id,
            request.principal,
            note=request.note,
            lifetime=lifetime,
            created_by=current_access().principal,
        )
        return access_pb2.CreateTokenResponse(token=token, token_id=token_id)

    async def RevokeTokens(  # noqa: N802
        self, request: access_pb2.RevokeTokensRequest, _context: Context
    ) -> access_pb2.RevokeTokensResponse:
        check_count("token_ids", len(request.token_ids), _MOST)
        for token_id in request.token_ids:
            check_text("token_ids", token_id, LONGEST_NAME, least=1)
        revoked = await store_access.revoke_tokens(self._store, request.token_ids)
        return access_pb2.RevokeTokensResponse(revoked=revoked)

    async def ListTokens(  # noqa: N802
        self, _request: access_pb2.ListTokensRequest, _context: Context
    ) -> access_pb2.ListTokensResponse:
        response = access_pb2.ListTokensResponse()
        for info in await store_access.list_tokens(self._store):
            token = response.tokens.add(
                token_id=info.token_id,
                principal=info.principal,
                note=info.note,
                created_at=to_timestamp(info.created_at),
                created_by=info.created_by,
            )
            if info.expires_at is not None:
                token.expires_at.CopyFrom(to_timestamp(info.expires_at))
            if info.revoked_at is not None:
                token.revoked_at.CopyFrom(to_timestamp(info.revoked_at))
        return response

    async def ListAuditEvents(  # noqa: N802
        self, request: access_pb2.ListAuditEventsRequest, _context: Context
    ) -> access_pb2.ListAuditEventsResponse:
        size = page_size(request.page_size)
        for field in ("actor", "method", "mentions"):
            check_text(field, getattr(request, field), LONGEST_NAME)
        if request.page_token and not (request.page_token.isascii() and request.page_token.isdigit()):
            raise Problem("page_token", "must be the next_page_token of an answer")
        before = int(request.page_token[:18]) if request.page_token else _NEWEST
        events = await list_events(
            self._store,
            before=before,
            limit=size + 1,
            actor=request.actor,
            method=request.method,
            mentions=request.mentions,
            since=read_instant("since", request.since) if request.HasField("since") else None,
            refused=request.refused,
        )
        page = events[:size]
        response = access_pb2.ListAuditEventsResponse()
        for event in page:
            response.events.add(event_id=event.event_id, at=to_timestamp(event.at), **asdict(event.entry))
        if len(events) > size:
            response.next_page_token = str(page[-1].event_id)
        return response


def read_grants(asked: Sequence[access_pb2.Grant]) -> tuple[list[Grant], list[access_pb2.GrantResult]]:
    """Return the grants of a request that are valid, and a result for each, with an error or without.

    Raises:
        PermissionDeniedError: the caller may not grant one of them.
    """
    check_count("grants", len(asked), _MOST)
    grants, results = [], []
    for each in asked:
        try:
            grants.append(_grant(each))
            results.append(access_pb2.GrantResult())
        except Problem as problem:
            results.append(access_pb2.GrantResult(error=problem.to_wire()))
    for grant in grants:
        require(Action.GRANT, grant.pattern)
    return grants, results


def _grant(asked: access_pb2.Grant) -> Grant:
    if asked.role not in _ROLES:
        raise Problem("role", "must be one of client, owner, host, operator, auditor")
    check_text("principal", asked.principal, LONGEST_NAME, least=1)
    if asked.principal in (GROUP, PERSON):
        raise Problem("principal", f"{asked.principal!r} names nobody: write a name after it")
    if problem := pattern_problem(asked.pattern):
        raise Problem("pattern", problem)
    return Grant(asked.principal, _ROLES[asked.role], asked.pattern)


def _to_wire(grant: Grant) -> access_pb2.Grant:
    return access_pb2.Grant(principal=grant.principal, role=_ROLES_TO_WIRE[grant.role], pattern=grant.pattern)
