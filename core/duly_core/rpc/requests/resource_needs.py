"""Checks which resources a task names, against those that are declared."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from google.protobuf.message import DecodeError

from duly_core.lambdas.names import namespace_of
from duly_core.limits import store as store_resources
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.names import check_name_in_namespace, is_name_in_namespace
from duly_core.rpc.requests.new_tasks import check_session_key
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.task import ResourceNeed
from duly_wire.v1 import frontend_pb2, task_pb2

FRESH = timedelta(seconds=5)
"""How long what is remembered of a resource may lag behind the store."""
_MOST = 8
_HEAVIEST = 1000
_MOST_BYTES = 4096
"""More than the 8 largest needs take: what is longer is not read."""


class ResourceCache:
    """Remembers for some seconds which resources are declared, and which of them have keys."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds: dict[str, bool] = {}
        self._read_at = float("-inf")

    async def kinds(self, asked: Iterable[Sequence[task_pb2.ResourceNeed] | Problem]) -> Mapping[str, bool]:
        """Return whether each resource that is asked for has keys; those that are not declared are left out.

        Raises:
            StoreUnavailableError: they had to be looked up, and could not.
        """
        wanted = {need.name for needs in asked if not isinstance(needs, Problem) for need in needs}
        # Postgres refuses a NUL: one such name would fail the tasks of all others in the call
        wanted = {name for name in wanted if is_name_in_namespace(name)}
        if not wanted:
            return self._kinds
        if time.monotonic() - self._read_at > FRESH.total_seconds():
            self._kinds = {}
            self._read_at = time.monotonic()
        known = self._kinds
        if missing := sorted(wanted - known.keys()):
            # into what was there when the read began: it may be older than a later one
            known |= await store_resources.per_key_of(self._store, missing)
        return known

    def forget(self) -> None:
        """Read them again next time: some were changed."""
        self._read_at = float("-inf")


def read_needs(data: bytes) -> Sequence[task_pb2.ResourceNeed] | Problem:
    """Return what the field `resources` of a task says; a Problem if it is too long, or is no ResourceNeeds."""
    if len(data) > _MOST_BYTES:
        return Problem(
            "resources", f"has {len(data):,} bytes, and may have {_MOST_BYTES:,}: name fewer resources"
        )
    try:
        return task_pb2.ResourceNeeds.FromString(data).needs
    except DecodeError:
        return Problem("resources", "must be a serialized ResourceNeeds")


def resource_needs(
    asked: Sequence[task_pb2.ResourceNeed] | Problem, kinds: Mapping[str, bool] | None, lambda_name: str
) -> tuple[ResourceNeed, ...]:
    """Return what a task of a lambda needs of resources.

    A resource that has a namespace is unknown to lambdas of others: their tasks could take all of its units. `kinds` says
    which are declared, and which of these have keys. None: they need not be declared yet.

    Raises:
        Problem: names the field and the fix.
    """
    if isinstance(asked, Problem):
        raise asked
    if len(asked) > _MOST:
        raise Problem("resources", f"there may be at most {_MOST}, not {len(asked)}")
    needs = tuple(
        [_need(f"resources[{place}]", each, kinds, lambda_name) for place, each in enumerate(asked)]
    )
    if len(needs) > 1 and len({(need.name, need.key) for need in needs}) < len(needs):
        raise Problem("resources", "one resource and key is named twice: add up the weights")
    return needs


def needs_of(task: frontend_pb2.NewTask, kinds: Mapping[str, bool] | None) -> tuple[ResourceNeed, ...]:
    """Return what one task needs of resources, as `resource_needs` does.

    Raises:
        Problem: names the field and the fix.
    """
    if not task.resources:
        return ()
    return resource_needs(read_needs(task.resources), kinds, getattr(task, "lambda"))


def check_declared(needs: Iterable[ResourceNeed], kinds: Mapping[str, bool], lambda_name: str) -> None:
    """Check that resources are declared for a lambda, and that needs have keys as these say.

    Raises:
        Problem: names the field and the fix.
    """
    for place, need in enumerate(needs):
        _check(f"resources[{place}]", need.name, need.key, kinds, lambda_name)


def _need(
    field: str, asked: task_pb2.ResourceNeed, kinds: Mapping[str, bool] | None, lambda_name: str
) -> ResourceNeed:
    name, key, weight = asked.name, asked.key, asked.weight
    if store_resources.is_quota(name):
        raise Problem(f"{field}.name", f"{name[:128]} is a quota: leave it out, it counts anyway")
    if kinds is None:
        check_name_in_namespace(f"{field}.name", name)
        kinds = {name: bool(key)}
    _check(field, name, key, kinds, lambda_name)
    if not 0 <= weight <= _HEAVIEST:
        raise Problem(f"{field}.weight", f"must be 1 to {_HEAVIEST:,}, not {weight:,}")
    return ResourceNeed(name, key, weight or 1)


def _check(field: str, name: str, key: str, kinds: Mapping[str, bool], lambda_name: str) -> None:
    per_key = kinds.get(name)
    namespace = namespace_of(name)
    if per_key is None or (namespace and namespace != namespace_of(lambda_name)):
        raise Problem(
            f"{field}.name",
            f"no resource {name[:128]!r} is declared for this lambda: fix the name (`duly resources list` shows "
            "them), or let an operator declare it (`duly resources set NAME CAPACITY`); one with a namespace, such as "
            "shop/database, is for lambdas of this namespace only",
            task_pb2.ERROR_CODE_UNKNOWN_RESOURCE,
        )
    if per_key:
        check_session_key(f"{field}.key", key)
    elif key:
        raise Problem(f"{field}.key", f"{name} has no keys: leave it out")
