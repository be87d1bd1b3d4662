"""SessionService: shows sessions, and ends their blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

from duly_core.access.current import current_access, denied, restriction
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.patterns import pattern_of_namespace
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.requests.checks import check_count, page_size
from duly_core.rpc.requests.names import check_namespace
from duly_core.rpc.requests.new_tasks import check_session_key, parse_task_id
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_core.sessions import store as store_sessions
from duly_core.sessions.store import SessionState
from duly_core.tasks.scope import task_origins
from duly_frontend import events
from duly_frontend.lists import page_token
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.ids import TaskId
from duly_wire.v1 import sessions_pb2, sessions_pb2_grpc, task_pb2

_MOST = 1000
_MOST_TASKS = 10_000
"""Ids of waiting tasks in one answer."""


class SessionServicer(sessions_pb2_grpc.SessionServiceServicer):
    """Answers each session for itself; one with an error has changed nothing."""

    def __init__(self, stores: FrontendStores, notifier: Notifier) -> None:
        self._stores = stores
        self._notifier = notifier

    async def GetSession(  # noqa: N802 (the wire's name)
        self, request: sessions_pb2.GetSessionRequest, _context: Context
    ) -> sessions_pb2.GetSessionResponse:
        keys = _checked(request.keys)
        if not 0 <= request.max_tasks <= _MOST:
            raise InvalidRequestError("max_tasks", f"must be from 0 to {_MOST:,}")
        if request.max_tasks * len(keys) > _MOST_TASKS:
            raise InvalidRequestError(
                "max_tasks",
                f"must be at most {_MOST_TASKS:,} for all sessions together: ask for fewer keys, or tasks",
            )
        namespace = check_namespace("namespace", request.namespace)
        asked = [SessionId(namespace, key) for key in keys if isinstance(key, str)]
        known = await store_sessions.get_sessions(self._stores.reads, asked, request.max_tasks)
        found = await self._reachable(Action.READ, known)
        return sessions_pb2.GetSessionResponse(
            results=[
                sessions_pb2.GetSessionResult(error=key.to_wire())
                if isinstance(key, Problem)
                else _result(found.get(SessionId(namespace, key)))
                for key in keys
            ]
        )

    async def ListSessions(  # noqa: N802
        self, request: sessions_pb2.ListSessionsRequest, _context: Context
    ) -> sessions_pb2.ListSessionsResponse:
        size = page_size(request.page_size)
        namespace = None
        if request.HasField("namespace"):
            namespace = check_namespace("namespace", request.namespace)
        scope = restriction(Action.READ)
        if scope is not None and (namespace is None or not scope.covers_namespace(namespace)):
            raise denied(current_access(), Action.READ, pattern_of_namespace(namespace or ""))
        after = page_token.read_name(request.page_token)
        async with self._stores.listing("ListSessions") as lists:
            found = await store_sessions.list_sessions(
                lists, namespace=namespace, after=after, blocked=request.blocked, limit=size + 1
            )
        token = page_token.write_name(str(found[size - 1].session_id)) if len(found) > size else ""
        return sessions_pb2.ListSessionsResponse(sessions=map(_to_wire, found[:size]), next_page_token=token)

    async def UnblockSession(  # noqa: N802
        self, request: sessions_pb2.UnblockSessionRequest, _context: Context
    ) -> sessions_pb2.UnblockSessionResponse:
        keys = _checked(request.keys)
        namespace = check_namespace("namespace", request.namespace)
        named = {SessionId(namespace, key): task_id for key, task_id in _read_blockers(request).items()}
        asked = [SessionId(namespace, key) for key in keys if isinstance(key, str)]
        if restriction(Action.REDRIVE) is not None:
            found = await store_sessions.get_sessions(self._stores.reads, asked, 0)
            asked = [*await self._reachable(Action.REDRIVE, found)]
            reached = frozenset(asked)
            named = {session: task_id for session, task_id in named.items() if session in reached}
        unblocked = await store_sessions.unblock_sessions(self._stores.writes, asked, named)
        if unblocked.now:
            self._notifier.due_in(timedelta(), tasks=len(unblocked.now))
            events.unblocked.inc(len(unblocked.now))
        done = unblocked.now | unblocked.before
        return sessions_pb2.UnblockSessionResponse(
            results=[
                sessions_pb2.UnblockSessionResult(error=problem.to_wire() if problem else None)
                for problem in (
                    key
                    if isinstance(key, Problem)
                    else None
                    if SessionId(namespace, key) in done
                    else _NOT_BLOCKED
                    for key in keys
                )
            ]
        )

    async def _reachable(
        self, action: Action, found: Mapping[SessionId, SessionState]
    ) -> Mapping[SessionId, SessionState]:
        """Return what the caller may reach of these sessions.

        Of a namespace that is all its own that is all of them; else those whose head, or what blocks them, it may reach, and of
        what waits only what it may.
        """
        scope = restriction(action)
        if scope is None:
            return found
        in_part = {
            session: state
            for session, state in found.items()
            if not scope.covers_namespace(session.namespace)
        }
        named = {
            task_id
            for state in in_part.values()
            for task_id in (state.head, state.blocked_by, *state.waiting)
            if task_id is not None
        }
        origins = await task_origins(self._stores.reads, named)
        within = {task_id for task_id, origin in origins.items() if scope.reaches(*origin)}
        reached = {
            session: replace(state, waiting=tuple(each for each in state.waiting if each in within))
            for session, state in in_part.items()
            if {state.head, state.blocked_by} - {None} <= within
        }
        return {session: state for session, state in found.items() if session not in in_part} | reached


_NOT_BLOCKED = Problem(
    "key", "the session is not blocked, or its tasks still fail", task_pb2.ERROR_CODE_NOT_BLOCKED
)
_NOT_FOUND = Problem(
    "key", "the session has no live tasks, and is not blocked", task_pb2.ERROR_CODE_NOT_FOUND
)


def _checked(keys: Sequence[str]) -> list[str | Problem]:
    check_count("keys", len(keys), _MOST)
    return check_each(partial(check_session_key, "key"), keys)


def _read_blockers(request: sessions_pb2.UnblockSessionRequest) -> dict[str, TaskId]:
    """Return the task whose block is to end, by key, where one is named."""
    field, texts = "blocked_by_task_ids", request.blocked_by_task_ids
    if texts and len(texts) != len(request.keys):
        raise InvalidRequestError(field, "leave it out, or give one for each key")
    if texts and len(set(request.keys)) < len(request.keys):
        raise InvalidRequestError("keys", "names a session twice")
    return {key: parse_task_id(text, field) for key, text in zip(request.keys, texts, strict=False) if text}


def _result(state: SessionState | None) -> sessions_pb2.GetSessionResult:
    if state is None:
        return sessions_pb2.GetSessionResult(error=_NOT_FOUND.to_wire())
    return sessions_pb2.GetSessionResult(
        session=_to_wire(state),
        waiting_task_ids=[str(UUID(bytes=task_id)) for task_id in state.waiting],
    )


def _to_wire(state: SessionState) -> sessions_pb2.SessionState:
    message = sessions_pb2.SessionState(
        key=state.session_id.key,
        namespace=state.session_id.namespace,
        length=state.length,
        head_task_id=str(UUID(bytes=state.head)) if state.head else "",
        blocked_by_task_id=str(UUID(bytes=state.blocked_by)) if state.blocked_by else "",
        failing=state.failing,
    )
    if state.head_status is not None:
        message.head_status = STATUS_TO_WIRE[state.head_status]
    if state.blocked_at is not None:
        message.blocked_at.FromDatetime(state.blocked_at)
    return message
