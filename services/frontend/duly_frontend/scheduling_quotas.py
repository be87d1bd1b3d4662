"""Bounds how many tasks of a lambda clients may schedule over time."""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic

from duly.enums import Priority
from duly.v1 import task_pb2
from duly_core.errors import StoreUnavailableError
from duly_core.rpc.problem import Problem
from duly_core.settings import format_duration
from duly_core.store import resources as store_resources
from duly_core.store.pool import Store
from duly_core.store.resources import ResourceLimit
from duly_core.task import NewTask

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
        """Count a task that is to be scheduled; a Problem if its lambda's quota is used up, and then it does not count."""
        quota = self._quotas.get(task.lambda_name)
        if quota is None or quota.rate is None:
            return None
        said = (task.lambda_name, task.idempotency_key) if task.idempotency_key else task.task_id
        if said in self._let_through:  # a repeat, perhaps of a call that is still under way
            return None
        key = (task.lambda_name, task.priority if quota.per_key else None)
        now = monotonic()
        pace = quota.rate.period.total_seconds() / quota.rate.units
        until = max(self._used_until.get(key, now), now)
        wait = until - now - (quota.rate.burst - 1) * pace
        if wait <= _ROUNDING:
            self._used_until[key] = until + pace
            self._let_through[said] = None
            if len(self._let_through) > _REMEMBERED:
                self._let_through.popitem(last=False)
            return None
        rate = f"{quota.rate.units:,}/{format_duration(quota.rate.period)}"
        return Problem(
            "lambda",
            f"the quota of {quota.name} is used up, {rate} and {quota.rate.burst:,} at once: schedule it again in "
            f"{wait:.3f}s, or let an operator raise the quota (duly resources set {quota.name} --rate ...)",
            task_pb2.ERROR_CODE_QUOTA_EXCEEDED,
        )
