"""The part of AsyncClient that is about sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from duly.errors import DulyError
from duly.sessions.session import SessionState
from duly.tasks.reads import in_chunks
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.v1 import sessions_pb2, task_pb2


class SessionCalls(ClientPart):
    """Reads sessions, and ends their blocks."""

    async def get_session(
        self, key: str, *, namespace: str = "", max_tasks: int = 100
    ) -> SessionState | None:
        """Return a session with up to `max_tasks` (at most 1,000) of its waiting tasks.

        - `namespace`: that of its lambdas, what stands before `/` in their names; empty: the default one.

        None: it has no live tasks, and is not blocked. Raises InvalidTaskError.
        """
        caller = self._caller
        request = sessions_pb2.GetSessionRequest(keys=[key], namespace=namespace, max_tasks=max_tasks)
        (result,) = (await caller.call(caller.sessions.GetSession, request)).results
        if not result.HasField("error"):
            return SessionState.from_proto(result.session, tuple(result.waiting_task_ids))
        if result.error.code == task_pb2.ERROR_CODE_NOT_FOUND:
            return None
        raise error_mapping.from_item(result.error)

    async def sessions(
        self, *, namespace: str | None = None, blocked: bool = False, cell: str = "", page_size: int = 100
    ) -> AsyncIterator[SessionState]:
        """Yield the sessions that have live tasks or are blocked, by namespace and key; with `blocked` only the blocked ones.

        - `namespace`: only those of this one; empty: of the default one. None: of all, which needs a role for `*`.
        - `cell`: only those that live there; without cells it is refused.

        Raises PermissionDeniedError.
        """
        pages = self.session_pages(namespace=namespace, blocked=blocked, cell=cell, page_size=page_size)
        async for page in pages:
            for session in page:
                yield session

    async def session_pages(
        self, *, namespace: str | None = None, blocked: bool = False, cell: str = "", page_size: int = 100
    ) -> AsyncIterator[list[SessionState]]:
        """Yield what `sessions` yields a page at a time; `page_size` is 1 to 1,000."""
        caller = self._caller
        request = sessions_pb2.ListSessionsRequest(
            namespace=namespace, blocked=blocked, cell=cell, page_size=page_size
        )
        async for page in caller.pages(caller.sessions.ListSessions, request):
            yield [SessionState.from_proto(each) for each in page.sessions]

    async def unblock_session(self, key: str, *, namespace: str = "", blocked_by: str | None = None) -> None:
        """Let the next task of a blocked session run; the one that blocked it stays a dead letter.

        - `namespace`: that of its lambdas; empty: the default one.

        With `blocked_by` (`SessionState.blocked_by_task_id`) only the block of this task ends. Where it is over already
        nothing is done, so that a repeat does no harm. Raises SessionNotBlockedError, InvalidTaskError.
        """
        caller = self._caller
        if blocked_by is None:
            # a try of the same call that is repeated must not end the block of the next task
            session = await self.get_session(key, namespace=namespace, max_tasks=0)
            blocked_by = session.blocked_by_task_id if session else None
        request = sessions_pb2.UnblockSessionRequest(
            keys=[key], namespace=namespace, blocked_by_task_ids=[blocked_by or ""]
        )
        (result,) = (await caller.call(caller.sessions.UnblockSession, request)).results
        error_mapping.check(result)

    async def unblock_sessions(self, sessions: Iterable[SessionState]) -> list[DulyError | None]:
        """Let the next task of many blocked sessions run, as they were listed; return for each, in order, why not, or None.

        Of each only the block that the list showed ends, so that a repeat does no harm. A SessionNotBlockedError says that there was
        nothing to do.
        """
        caller, listed = self._caller, [*sessions]
        answers: list[DulyError | None] = [None] * len(listed)
        for namespace in sorted({each.namespace for each in listed}):
            places = [place for place, each in enumerate(listed) if each.namespace == namespace]
            for some in in_chunks(places):
                request = sessions_pb2.UnblockSessionRequest(
                    keys=[listed[place].key for place in some],
                    namespace=namespace,
                    blocked_by_task_ids=[listed[place].blocked_by_task_id or "" for place in some],
                )
                results = (await caller.call(caller.sessions.UnblockSession, request)).results
                for place, result in zip(some, results, strict=True):
                    if result.HasField("error"):
                        answers[place] = error_mapping.from_item(result.error)
        return answers
