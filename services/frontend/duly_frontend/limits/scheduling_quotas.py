"""Bounds how many tasks of a lambda or a namespace clients may schedule over time."""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic

from duly_core.config.settings import format_duration
from duly_core.errors import StoreUnavailableError
from duly_core.limits import store as store_resources
from duly_core.limits.rates import rate_ahead, rate_wait
from duly_core.limits.store import Rate, ResourceLimit, scheduling_quotas_of
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.task import NewTask
from duly_wire.enums import Priority
from duly_wire.v1 import task_pb2

FRESH = timedelta(seconds=5)
"""How long what is remembered of the quotas may lag behind the store."""

_REMEMBERED = 10_000
"""Tasks that were let through: more than come while a client repeats a call."""
_ROUNDING = 1e-6
"""Seconds: sums of periods are not exact."""


class SchedulingQuotas:
    """The quotas of scheduling, and what was used of them through this process: each Frontend counts for itself.

    The rule is GCRA (the generic cell rate algorithm), as for the rates of resources.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._quotas: Mapping[str, ResourceLimit] = {}
        self._read_at = float("-inf")
        self._used_until: dict[tuple[str, Priority | None], float] = {}
        """By when the tasks that were let through will have come by at the rate, in monotonic seconds."""
        self._let_through: OrderedDict[bytes | tuple[str, str], None] = OrderedDict()
        """The last tasks that were: by key or, without one, by id."""

    def forget(self) -> None:
        """Read the quotas anew next time: some were changed."""
        self._read_at = float("-inf")

    async def refresh(self) -> None:
        """Read the quotas if what is known is old. If the store does not answer, they stay as they were."""
        now = monotonic()
        if now - self._read_at <= FRESH.total_seconds():
            return
        self._read_at = now
        try:
            self._quotas = await store_resources.scheduling_quotas(self._store)
        except StoreUnavailableError:
            return
        self._used_until = {
            key: until for key, until in self._used_until.items() if until > now and key[0] in self._quotas
        }

    def take(self, task: NewTask) -> Problem | None:
        """Count a task that is to be scheduled; a Problem if a quota of its lambda or namespace is used up, and then it does not count."""
        if not self._quotas:
            return None
        quotas = [
            quota for name in scheduling_quotas_of(task.lambda_name) if (quota := self._quotas.get(name))
        ]
        said = (task.lambda_name, task.idempotency_key) if task.idempotency_key else task.task_id
        if not quotas or said in self._let_through:  # a repeat, perhaps of a call that is still under way
            return None
        now = monotonic()
        used_until: dict[tuple[str, Priority | None], float] = {}
        for quota in quotas:
            if quota.rate is None:
                continue
            key = (quota.name, task.priority if quota.per_key else None)
            pace = quota.rate.period.total_seconds() / quota.rate.units
            ahead = max(self._used_until.get(key, now) - now, 0)
            wait = rate_wait(ahead, pace, quota.rate.burst)
            if wait > _ROUNDING:
                return _used_up(quota.name, quota.rate, wait)
            used_until[key] = now + rate_ahead(ahead, 0, pace, quota.rate.burst)
        self._used_until |= used_until
        self._let_through[said] = None
        if len(self._let_through) > _REMEMBERED:
            self._let_through.popitem(last=False)
        return None


def _used_up(name: str, rate: Rate, wait: float) -> Problem:
    said = f"{rate.units:,}/{format_duration(rate.period)}"
    return Problem(
        "lambda",
        f"the quota of {name} is used up, {said} and {rate.burst:,} at once: schedule it again in "
        f"{wait:.3f}s, or let an operator raise the quota (duly resources set {name} --rate ...)",
        task_pb2.ERROR_CODE_QUOTA_EXCEEDED,
    )
