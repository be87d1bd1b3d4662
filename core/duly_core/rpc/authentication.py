"""Asks who makes a call, and whether it is theirs to make, before anything of the request is read.

What is refused is read afterwards for the audit log, if it is small (interceptors.py).
"""

import inspect
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from duly_core.access.audit_entries import AuditLog
from duly_core.access.authorizer import Authorizer, Credentials
from duly_core.access.current import set_access, set_roles_unknown, stream_admission, stream_refusals
from duly_core.access.grants import Access
from duly_core.access.item_refusals import ItemRefusals
from duly_core.access.methods import ANSWERED_WITHOUT_ROLES
from duly_core.access.principal import Principal
from duly_core.errors import DulyError, PermissionDeniedError, StoreUnavailableError
from duly_core.rpc.call_audit import CallAudit
from duly_core.rpc.certificate_expiry import expires_at
from duly_core.rpc.error_status import code_of, status_of
from duly_core.rpc.requests.named_lambda import lambda_of

_NOBODY = Principal("")
_ALTERNATIVE_NAME = "x509_subject_alternative_name"
_COMMON_NAME = "x509_common_name"


class Admitter:
    """Applies an Authorizer to gRPC's calls."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def is_open(self, path: str) -> bool:
        """Whether everybody may make this call."""
        return self._authorizer.is_open(path)

    def naming(self, path: str, request: Message | None, refusal: Status) -> Status:
        """Return the refusal of a call by its method alone, with the lambda that its request names, if it names one."""
        named = None if request is None else self._authorizer.refusal(path, lambda_of(request))
        return refusal if named is None else status_of(named)

    async def admit(self, path: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Set the access of this call.

        Raises:
            UnauthenticatedError: the caller does not say who it is.
            PermissionDeniedError: the call is not the caller's to make.
        """
        await self._admit(path, credentials_of(context))

    async def _admit(self, path: str, credentials: Credentials) -> Principal:
        try:
            principal = await self._authorizer.identify(credentials, path)
            try:
                set_access(await self._authorizer.admit(path, principal))
            except PermissionDeniedError:
                set_access(Access(principal.name, ()))  # the audit log says who was refused
                raise
        except StoreUnavailableError:
            if path not in ANSWERED_WITHOUT_ROLES:
                raise
            set_roles_unknown()
            return _NOBODY
        return principal

    def wrap_stream(
        self, serve: Callable[..., Any], path: str, audit_log: AuditLog | None = None
    ) -> Callable[..., Any]:
        """Return what admits a stream and then serves it; each call that it carries is admitted for itself.

        `audit_log` keeps which were refused; None: nothing is kept.
        """
        if self.is_open(path):
            return serve
        audits = _Audits(audit_log, path)
        if inspect.isasyncgenfunction(serve):

            async def generate(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
                await self._admit_stream(path, context, audits)
                async for response in serve(requests, context):
                    yield response

            return generate

        async def run(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await self._admit_stream(path, context, audits)
            await serve(requests, context)

        return run

    async def _admit_stream(
        self, path: str, context: grpc.aio.ServicerContext[Any, Any], audits: "_Audits"
    ) -> None:
        credentials = credentials_of(context)
        service, _, method = path.rpartition("/")

        async def record(method: str, request: Message | ItemRefusals | None, code: str) -> None:
            await audits.record_refusal(method, context, request, code)

        try:
            principal = await self._admit(path, credentials)
        except DulyError as error:
            await record(method, None, code_of(error))
            await context.abort_with_status(rpc_status.to_status(status_of(error)))

        async def admit(method: str) -> Access:
            caller = await self._authorizer.identify_again(credentials, principal)
            return await self._authorizer.admit(f"{service}/{method}", caller)

        stream_admission.set(admit)
        stream_refusals.set(record)


class _Audits:
    """The audits of the calls that a kind of stream carries."""

    def __init__(self, audit_log: AuditLog | None, path: str) -> None:
        self._log = audit_log
        self._service = path.rpartition("/")[0]
        self._audits: dict[str, CallAudit] = {}

    async def record_refusal(
        self,
        method: str,
        context: grpc.aio.ServicerContext[Any, Any],
        request: Message | ItemRefusals | None,
        code: str,
    ) -> None:
        if self._log is None:
            return
        audit = self._audits.get(method)
        if audit is None:
            audit = self._audits[method] = CallAudit(self._log, f"{self._service}/{method}")
        if audit.keeps(code):
            await audit.record_refusal(context, request, code)


def credentials_of(context: grpc.aio.ServicerContext[Any, Any]) -> Credentials:
    """Return what a call came with."""
    header = ""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            header = value if isinstance(value, str) else value.decode("latin-1")
            break
    if header:
        return Credentials(authorization=header)
    auth = context.auth_context()
    name = _name_of(auth)
    return Credentials(certificate_name=name, certificate_expires_at=expires_at(auth) if name else None)


def _name_of(auth: Any) -> str:
    """Return the name in a client certificate: its first alternative name, else its common name; empty: there is none."""
    for key in (_ALTERNATIVE_NAME, _COMMON_NAME):
        names = auth.get(key) or ()
        for name in names:
            return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    return ""
