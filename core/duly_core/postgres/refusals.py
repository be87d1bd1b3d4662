"""Statements that Postgres refuses for good: a right or a table is missing, and only somebody who acts can change that."""

import time
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import structlog

from duly_core.errors import StoreRefusedError

log = structlog.get_logger()

REFUSED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
    psycopg.errors.InvalidSchemaName,
)

_LASTS = timedelta(seconds=2).total_seconds()
"""A partition that another process drops at this moment is missing once only."""
_REMEMBERED = timedelta(seconds=30).total_seconds()
"""After this the statement is given another chance: a service that is not healthy may be asked for nothing."""
_LOGGED_EVERY = timedelta(minutes=1).total_seconds()


@dataclass(slots=True)
class _Refusal:
    first_at: float
    last_at: float
    logged_at: float = float("-inf")


class StatementRefusals:
    """What one pool was refused lately."""

    def __init__(self) -> None:
        self._refusals: dict[str, _Refusal] = {}

    def note(self, error: BaseException, where: str) -> StoreRefusedError:
        """Remember a refusal, log it at error level, and return what it means to whoever asked the store."""
        now = time.monotonic()
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        self._forget_old(now)
        refusal = self._refusals.setdefault(reason, _Refusal(now, now))
        refusal.last_at = now
        if now - refusal.logged_at >= _LOGGED_EVERY:
            refusal.logged_at = now
            log.error("statement refused by Postgres", reason=reason, store=where, remedy=_remedy(error))
        return StoreRefusedError(f"Postgres at {where} refuses it: {reason}; {_remedy(error)}")

    def lasting(self) -> str | None:
        """Return what is refused for longer than a moment; None: nothing."""
        self._forget_old(time.monotonic())
        reasons = (
            reason
            for reason, refusal in self._refusals.items()
            if refusal.last_at - refusal.first_at >= _LASTS
        )
        return next(reasons, None)

    def _forget_old(self, now: float) -> None:
        for reason in [
            reason for reason, refusal in self._refusals.items() if now - refusal.last_at > _REMEMBERED
        ]:
            del self._refusals[reason]


def _remedy(error: BaseException) -> str:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return (
            "grant it to the user of store.dsn, or let that user own the tables, as the one who migrates does"
        )
    return "the schema is not this release's: see that store.dsn names the right database, and run `duly migrate`"
