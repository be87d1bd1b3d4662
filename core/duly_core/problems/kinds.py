"""The kinds of problems in the order of their effects, and how bad each is. Pure data."""

from duly_wire.enums import ProblemKind as Kind
from duly_wire.enums import ProblemSeverity as Severity

__all__ = ["CAUSES_FIRST", "Kind", "Severity"]

CAUSES_FIRST = (
    Kind.STORE_AWAY,
    Kind.CELL_AWAY,
    Kind.SERVICE_AWAY,
    Kind.STORE_SLOW,
    Kind.NO_HOST,
    Kind.SILENT_HOSTS,
    Kind.SLOTS_HELD,
    Kind.BREAKER_OPEN,
    Kind.LAMBDA_GONE,
    Kind.LATE,
    Kind.BUDGET_BURNS,
    Kind.SESSIONS_BLOCKED,
    Kind.POOL_DRIVER_FAILS,
    Kind.RESOURCE_FULL,
    Kind.DEAD_LETTERS,
    Kind.CLOCKS_APART,
    Kind.CERTIFICATE_EXPIRES,
    Kind.NOTIFICATIONS_FAIL,
    Kind.PAUSED,
    Kind.TOKEN_EXPIRES,
)
"""Of two problems of the same severity the one that may cause the other stands first."""
