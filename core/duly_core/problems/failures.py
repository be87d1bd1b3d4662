"""Finds what failed for good and waits for somebody: dead letters by their causes, and sessions that they block."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from duly_core.lambdas.names import base_name
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import AboutSession, AboutTask, FoundProblem, found
from duly_core.problems.statements import PROBLEMS
from duly_core.tasks.causes import Cause
from duly_core.tasks.dead_letters import causes_of

_MOST_LETTERS = 1_000
"""The newest are looked at."""
_MOST_CAUSES = 50
_RECENT = timedelta(days=1)
"""Older dead letters are information: nobody has redriven or purged them for a day."""
_MOST_SESSIONS = 1_000


class _Letter(NamedTuple):
    task_id: bytes
    lambda_name: str
    ended_at: datetime


class DeadLetterCauses:
    """Finds the causes of dead letters. It remembers those that it read: a letter that stays is read once."""

    def __init__(self) -> None:
        self._causes: dict[bytes, Cause] = {}

    async def find(self, store: Store, now: datetime) -> list[FoundProblem]:
        """Return a problem for each cause: those with most dead letters of the newest 1,000.

        Raises:
            StoreUnavailableError: ask again.
        """
        rows = await store.run(PROBLEMS["newest_dead_letters"], {"most": _MOST_LETTERS})
        letters = [_Letter(*row) for row in rows]
        await self._read(store, letters)
        groups: dict[Cause, list[_Letter]] = {}
        for letter in letters:
            cause = self._causes.get(letter.task_id)
            if cause is not None:
                groups.setdefault(cause, []).append(letter)
        most = sorted(groups.items(), key=lambda group: -len(group[1]))[:_MOST_CAUSES]
        is_complete = len(letters) < _MOST_LETTERS
        return [_dead(cause, group, now, is_complete=is_complete) for cause, group in most]

    async def _read(self, store: Store, letters: Sequence[_Letter]) -> None:
        lambdas = {letter.task_id: letter.lambda_name for letter in letters}
        self._causes = {task_id: cause for task_id, cause in self._causes.items() if task_id in lambdas}
        missing = sorted(lambdas.keys() - self._causes.keys())
        if not missing:
            return
        self._causes |= await causes_of(store, missing)


def _dead(cause: Cause, letters: Sequence[_Letter], now: datetime, *, is_complete: bool) -> FoundProblem:
    newest_at = max(letter.ended_at for letter in letters)
    return found(
        Kind.DEAD_LETTERS,
        Severity.WARNING if now - newest_at < _RECENT else Severity.INFORMATION,
        min(letter.ended_at for letter in letters),
        cause.lambda_name,
        cause.fingerprint,
        lambdas={cause.lambda_name: len(letters)},
        at_least=not is_complete,
        holders=[
            AboutTask(str(UUID(bytes=bytes(letter.task_id))), letter.lambda_name, "fatal_failure")
            for letter in letters[:1]
        ],
        failure_kind=cause.kind,
        exception=cause.exception,
        message=cause.message,
        newest_at=newest_at.isoformat(),
    )


async def sessions_blocked(store: Store) -> list[FoundProblem]:
    """Return a problem for each lambda and namespace whose failed tasks block sessions.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(PROBLEMS["blocked_sessions"], {"most": _MOST_SESSIONS})
    groups: dict[tuple[str, str], list[tuple[SessionId, datetime, bytes, int]]] = {}
    for key, blocked_at, blocked_by, length, lambda_name in rows:
        session = SessionId.parse(key)
        of = base_name(lambda_name or ""), session.namespace
        groups.setdefault(of, []).append((session, blocked_at, blocked_by, length))
    problems = []
    for (name, namespace), blocked in groups.items():
        waiting = sum(length for *_, length in blocked)
        blocked.sort(key=lambda each: each[1])
        problems.append(
            found(
                Kind.SESSIONS_BLOCKED,
                Severity.WARNING,
                blocked[0][1],
                name,
                namespace,
                lambdas=Counter({name: waiting}) if name else {},
                tasks=waiting,
                at_least=len(rows) >= _MOST_SESSIONS,
                sessions=[
                    AboutSession(session.key, str(UUID(bytes=bytes(blocked_by))), blocked_at, length)
                    for session, blocked_at, blocked_by, length in blocked
                ],
                count=len(blocked),
                namespace=namespace,
            )
        )
    return problems
