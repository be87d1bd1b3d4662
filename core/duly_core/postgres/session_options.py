"""What a session of the store must be set to: by its own start-up options, or by its role behind a pooler."""

from datetime import timedelta
from typing import Any

from duly_core.postgres.settings import StoreSettings

_LONGEST_IDLE_MS = 3_000
"""A process that is frozen in a transaction holds its rows for no longer: heartbeats may wait for them."""

# The hot path's statements look rows up by key, always, and are written so that there is no other way to them: their
# plans are made once and kept (docs/decisions/0021-plans-on-every-postgres.md). What is read in the order of an index and up to a
# limit must not become a bitmap of all that there is, which is as cheap while a table is small.
PLANNED_ANEW = "set local plan_cache_mode = 'force_custom_plan'"
"""For a transaction whose statements want a plan for what they are asked, as those that tidy do."""

_PLANNER = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


def options(settings: StoreSettings, lock_timeout: timedelta | None = None) -> dict[str, Any]:
    """Postgres's settings of a session by name, every wait bounded."""
    timeout_ms = int(settings.statement_timeout / timedelta(milliseconds=1))
    lock_ms = max(1, int(lock_timeout / timedelta(milliseconds=1))) if lock_timeout else timeout_ms
    home = {"search_path": settings.schema_name} if settings.schema_name else {}
    return {
        **home,
        **_PLANNER,
        # Python's calendar ends with the year 9999: an instant near it must not be moved by the server's zone
        "timezone": "UTC",
        "statement_timeout": timeout_ms,
        "lock_timeout": lock_ms,
        "idle_in_transaction_session_timeout": min(timeout_ms * 2, _LONGEST_IDLE_MS),
    }


_KEEPALIVES = {
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
}
"""In seconds. Postgres ends the session of a machine that is gone without a word (its zone is cut off, its power failed) within half a
minute. By itself it would keep it for two hours, and each such loss would leave sessions, up to `max_connections`."""


def start_up(settings: StoreSettings, lock_timeout: timedelta | None = None) -> dict[str, Any]:
    """The libpq parameter that says so; none to a pooler, which refuses it and shares sessions out again."""
    if settings.pooled:
        return {}
    set_to = options(settings, lock_timeout) | _KEEPALIVES
    return {"options": " ".join(f"-c {name}={value}" for name, value in set_to.items())}
