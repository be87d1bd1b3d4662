"""Writes calls into the audit log: those that change something, and those that are refused for want of a role."""

import asyncio
import time
from collections import deque
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message

from duly_core.access.audit_entries import AuditEntry, AuditLog, describe
from duly_core.access.current import current_access
from duly_core.access.item_refusals import ItemRefusals
from duly_core.access.methods import AUDITED, AUDITED_IF_KNOWN
from duly_core.errors import DulyError

log = structlog.get_logger()

_REFUSALS = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_MOST_REFUSALS = 20
_PER_SECONDS = 1.0
"""So many refusals of a method are kept a second: who is refused must not fill the store."""


class CallAudit:
    """The audit of one method."""

    def __init__(self, audit_log: AuditLog, path: str) -> None:
        self._log = audit_log
        self._method = path.rpartition(".")[2]
        self._keeps_all = path in AUDITED
        self._only_known = path in AUDITED_IF_KNOWN
        self._refused_at: deque[float] = deque(maxlen=_MOST_REFUSALS)
        self._storing: set[asyncio.Task[None]] = set()

    def keeps_all(self, request: Message | None) -> bool:
        """Whether this call is kept, and not only if it is refused. A kill always is: an operator makes it, not a client."""
        is_plain = self._only_known and not getattr(request, "kill", False)
        return self._keeps_all and (not is_plain or bool(current_access().principal))

    def keeps(self, code: str, request: Message | None = None) -> bool:
        """Whether a call that ended with this status is kept."""
        return code in _REFUSALS or self.keeps_all(request)

    async def record(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        request: Message | ItemRefusals | None,
        response: Message | None,
        code: str,
    ) -> None:
        """Store what came of a call, before it is answered.

        Raises:
            StoreUnavailableError: it could not be stored.
        """
        await self._log.record(self._entry(context, request, response, code))

    def _entry(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        request: Message | ItemRefusals | None,
        response: Message | None,
        code: str,
    ) -> AuditEntry:
        return AuditEntry(
            current_access().principal,
            context.peer(),
            self._method,
            code,
            request.describe() if isinstance(request, ItemRefusals) else describe(request),
            describe(response),
        )

    def record_apart(
        self, context: grpc.aio.ServicerContext[Any, Any], request: Message | None, code: str
    ) -> None:
        """Store that nobody waited for the answer of a call; a task of its own does so, since the call's is cancelled."""
        task = asyncio.get_running_loop().create_task(self._store(self._entry(context, request, None, code)))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store(self, entry: AuditEntry) -> None:
        try:
            await self._log.record(entry)
        except DulyError as error:
            log.warning("cancelled call not audited", method=self._method, error=str(error))

    async def record_items(self, context: grpc.aio.ServicerContext[Any, Any], refusals: ItemRefusals) -> None:
        """Store which items of a call that was served were refused, if any were."""
        if refusals:
            await self.record_refusal(context, refusals, "PERMISSION_DENIED")

    @property
    def has_room(self) -> bool:
        """Whether a refusal would be kept now."""
        full = len(self._refused_at) == _MOST_REFUSALS
        return not full or time.monotonic() - self._refused_at[0] >= _PER_SECONDS

    async def record_refusal(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        request: Message | ItemRefusals | None,
        code: str,
    ) -> None:
        """Store that a call was refused, if there is room and the store answers: it is refused anyway."""
        if code in _REFUSALS:
            if not self.has_room:
                return
            self._refused_at.append(time.monotonic())
        try:
            await self.record(context, request, None, code)
        except DulyError as error:
            log.warning("refused call not audited", method=self._method, error=str(error))
