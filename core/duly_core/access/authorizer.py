"""Admits calls: who calls, what they may do, and whether this call is part of it."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from duly_core.access.current import current_access, denied, denied_everything
from duly_core.access.grants import Access
from duly_core.access.jwt_reader import open_jwt_reader
from duly_core.access.methods import KNOWN_CALLERS, NEEDS, OPEN_SERVICES, Reach
from duly_core.access.patience import read_soon
from duly_core.access.principal import Principal, check_not_reserved
from duly_core.access.settings import AuthSettings
from duly_core.access.tokens import TOKEN_PREFIX
from duly_core.errors import PermissionDeniedError, UnauthenticatedError
from duly_core.lambdas.patterns import EVERYTHING

_BEARER = "bearer "
_REFLECTION = "/grpc.reflection."


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a call came with."""

    authorization: str = ""
    """The header of this name."""
    certificate_name: str = ""
    """The name in the client certificate that TLS checked."""
    certificate_expires_at: datetime | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AccessSource(Protocol):
    """Where tokens and grants are kept."""

    async def token_holder(self, digest: bytes) -> Principal | None:
        """Return whose token has this SHA-256; None: it is unknown, revoked or expired."""
        ...

    async def access_of(self, principal: str, groups: tuple[str, ...] = ()) -> Access:
        """Return what a principal of these groups may do, at most seconds old."""
        ...


class Authorizer:
    """Admits the calls of one server. Refuses whatever the table of methods does not have."""

    def __init__(
        self,
        source: AccessSource,
        read_jwt: Callable[[str], Awaitable[Principal]] | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """Make one; `read_jwt` checks a JWT and raises UnauthenticatedError. None: JWTs are not accepted."""
        self._now = now
        self._source = source
        self._read_jwt = read_jwt

    @staticmethod
    def is_open(path: str) -> bool:
        """Whether everybody may make this call."""
        return path.startswith(tuple(OPEN_SERVICES))

    async def identify(self, credentials: Credentials, path: str = "") -> Principal:
        """Return who makes a call of this method. A token counts for more than a certificate: a proxy has one certificate for all.

        Raises:
            UnauthenticatedError: it came with nothing, or with something that is not valid.
            StoreUnavailableError: the store does not say whose token it is.
        """
        header = credentials.authorization
        if not header:
            if credentials.certificate_name:
                check_not_reserved(credentials.certificate_name)
                return Principal(credentials.certificate_name, credentials.certificate_expires_at)
            raise UnauthenticatedError(
                "this server identifies callers: give a token (DULY_TOKEN or DULY_RPC_TOKEN_FILE) or a client certificate"
            )
        if not header.lower().startswith(_BEARER):
            raise UnauthenticatedError("the authorization header must be `Bearer TOKEN`")
        token = header[len(_BEARER) :].strip()
        if token.startswith(TOKEN_PREFIX):
            digest = hashlib.sha256(token.encode()).digest()
            found = await read_soon(path, self._source.token_holder(digest))
            check_not_reserved(found.name if found else "")
        elif self._read_jwt is not None and token.count(".") == 2:
            found = await self._read_jwt(token)
        else:
            found = None
        if found is None:
            raise UnauthenticatedError(
                "this token is unknown, revoked or expired: ask an operator for a new one"
            )
        return found

    async def identify_again(self, credentials: Credentials, principal: Principal) -> Principal:
        """Return who makes a further call of a stream: its token may have been revoked meanwhile.

        A JWT and a certificate hold until they expire.

        Raises:
            UnauthenticatedError: the token is no longer valid.
        """
        header = credentials.authorization
        is_ours = header[len(_BEARER) :].strip().startswith(TOKEN_PREFIX)
        return await self.identify(credentials) if is_ours else principal

    async def admit(self, path: str, principal: Principal) -> Access:
        """Return what the caller may do.

        Raises:
            UnauthenticatedError: what it showed has expired meanwhile.
            PermissionDeniedError: this call is not part of it.
            StoreUnavailableError: the store does not say what they may do.
        """
        if principal.expires_at is not None and self._now() >= principal.expires_at:
            raise UnauthenticatedError(
                "what this caller shows has expired: ask an operator for a new token, or renew the certificate"
            )
        access = await read_soon(path, self._source.access_of(principal.name, principal.groups))
        if path in KNOWN_CALLERS or path.startswith(_REFLECTION):
            return access
        need = NEEDS.get(path)
        if need is None:
            raise PermissionDeniedError(f"nobody may call {path}: it is not in the table of permissions")
        scope = access.scope(need.action)
        if scope.is_empty and need.or_action is not None:
            scope = access.scope(need.or_action)
        if need.reach is Reach.ALL and not scope.is_everything:
            raise denied(access, need.action, EVERYTHING)
        if scope.is_empty:
            raise denied_everything(access, need.action)
        return access

    @staticmethod
    def refusal(path: str, lambda_name: str) -> PermissionDeniedError | None:
        """Return what to tell a caller that was refused by the method alone, and named a lambda; None: nothing else."""
        need = NEEDS.get(path)
        if need is None or need.reach is Reach.ALL or not lambda_name:
            return None
        return denied(current_access(), need.action, lambda_name)


def open_authorizer(settings: AuthSettings, source: AccessSource) -> Authorizer | None:
    """Return what admits calls by these settings; None: nobody is asked who they are.

    Raises:
        SettingsError: the keys of JWTs cannot be read.
    """
    if settings.mode == "none":
        return None
    return Authorizer(source, open_jwt_reader(settings))
