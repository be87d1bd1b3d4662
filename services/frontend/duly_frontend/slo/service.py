"""ObjectiveService: what operators promise of the starts of some lambdas, in place of the settings."""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from duly_core.access.current import current_access, denied, restriction
from duly_core.access.grants import Scope, pattern_problem
from duly_core.access.roles import Action
from duly_core.config.live_sections import START_WITHIN, LiveSloSettings
from duly_core.config.settings import format_duration
from duly_core.lambdas.names import base_name
from duly_core.lambdas.patterns import EVERYTHING, is_prefix, shared
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_count, check_text, read_duration
from duly_core.rpc.requests.field_masks import changed_fields, is_set, merged, named_fields
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_core.slo import store as store_slo
from duly_core.slo.objectives import MOST_OBJECTIVES, Objective
from duly_frontend.access.reach import refused
from duly_frontend.events import log
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import objectives_pb2, objectives_pb2_grpc, task_pb2

OBJECTIVE_FIELDS = ("share", "start_within")
"""What a mask may name of an objective."""
MOST_OF_ONE = 100
"""Objectives that there may be of all lambdas that a caller operates, for it to set another. Operators of all lambdas have MOST_OBJECTIVES."""
MOST_OF_TENANTS = 900
"""Objectives that there may be for such a caller to set another: operators of all lambdas must find room."""
_LONGEST_PATTERN = 255
_MOST = 100


class ObjectiveServicer(objectives_pb2_grpc.ObjectiveServiceServicer):
    """Boards take a change within a minute; other answers at once."""

    def __init__(self, stores: FrontendStores, slo: Callable[[], LiveSloSettings] = LiveSloSettings) -> None:
        """Make one; `slo` tells what is promised of other lambdas."""
        self._stores = stores
        self._slo = slo

    async def PutObjective(  # noqa: N802 (the wire's name)
        self, request: objectives_pb2.PutObjectiveRequest, _context: Context
    ) -> objectives_pb2.PutObjectiveResponse:
        pattern: str = getattr(request.objective, "lambda")
        check_pattern("objective.lambda", pattern)
        access = current_access()
        if not access.scope(Action.OPERATE).covers_all_that_match(pattern):
            raise denied(access, Action.OPERATE, pattern)
        mask = request.update_mask if request.HasField("update_mask") else None
        named = named_fields("update_mask", mask, request.objective, OBJECTIVE_FIELDS)
        store = self._stores.writes
        try:
            now, before = await store_slo.put_objective(
                store,
                pattern,
                lambda before: read_objective(request.objective, before, named),
                lambda patterns: has_room(patterns, access.scope(Action.OPERATE)),
            )
        except store_slo.TooManyObjectivesError:
            raise Problem("objective", _no_room(access.scope(Action.OPERATE))) from None
        after = objective_to_wire(now)
        former = objectives_pb2.Objective() if before is None else objective_to_wire(before)
        changed = changed_fields(former, after, OBJECTIVE_FIELDS)
        log.info("objective set", pattern=pattern, changed=[*changed.paths])
        return objectives_pb2.PutObjectiveResponse(
            objective=after,
            created=before is None,
            changed_fields=changed,
            lambdas=await self._lambdas_of(store, pattern),
        )

    async def _lambdas_of(self, store: Store, pattern: str) -> int:
        """Return for how many registered lambdas the objective of a pattern holds."""
        promised = await store_slo.promised_by_lambda(store, self._slo())
        return sum(each.pattern == pattern for each in promised.values())

    async def DeleteObjectives(  # noqa: N802
        self, request: objectives_pb2.DeleteObjectivesRequest, _context: Context
    ) -> objectives_pb2.DeleteObjectivesResponse:
        check_count("lambdas", len(request.lambdas), _MOST)
        for pattern in request.lambdas:
            check_text("lambdas", pattern, _LONGEST_PATTERN)
        scope = current_access().scope(Action.OPERATE)
        allowed = [each for each in request.lambdas if scope.covers_all_that_match(each)]
        gone = await store_slo.delete_objectives(self._stores.writes, allowed) if allowed else set()
        for pattern in sorted(gone):
            log.info("objective removed", pattern=pattern)
        return objectives_pb2.DeleteObjectivesResponse(
            results=[_deleted(each, allowed, gone) for each in request.lambdas]
        )

    async def ListObjectives(  # noqa: N802
        self, _request: objectives_pb2.ListObjectivesRequest, _context: Context
    ) -> objectives_pb2.ListObjectivesResponse:
        scope = restriction(Action.READ)
        async with self._stores.listing("ListObjectives") as lists:
            found = await store_slo.list_objectives(lists)
        seen = [each for each in found if scope is None or _concerns(scope, each.pattern)]
        return objectives_pb2.ListObjectivesResponse(objectives=map(objective_to_wire, seen))


def check_pattern(field: str, pattern: str) -> None:
    """Check what an objective is of.

    Raises:
        Problem: no lambda can have such a name, or it is of all lambdas, or of one version.
    """
    if not pattern:
        raise Problem(field, "is missing: write a lambda, or a prefix and *, such as mail.* or team/*")
    if pattern == EVERYTHING:
        raise Problem(
            field,
            "what is promised of all lambdas are the settings slo.starts_objective and slo.start_within: `duly settings set`",
        )
    if is_prefix(pattern):
        if reason := pattern_problem(pattern):
            raise Problem(field, reason)
        return
    check_lambda_name(field, pattern)
    if base_name(pattern) != pattern:
        raise Problem(field, f"an objective is of all versions of a lambda: write {base_name(pattern)}")


def has_room(patterns: Sequence[str], scope: Scope) -> bool:
    """Whether a caller that operates these lambdas may set another objective, beside those of these patterns."""
    if scope.is_everything:
        return len(patterns) < MOST_OBJECTIVES
    return len(patterns) < MOST_OF_TENANTS and sum(map(scope.covers_all_that_match, patterns)) < MOST_OF_ONE


def _no_room(scope: Scope) -> str:
    what = (
        f"there are {MOST_OBJECTIVES:,} objectives"
        if scope.is_everything
        else f"the lambdas that you operate may have {MOST_OF_ONE:,} objectives, and there may be {MOST_OF_TENANTS:,} in all"
    )
    return f"{what}: remove some first, or use prefixes"


def read_objective(
    said: objectives_pb2.Objective, before: Objective | None, named: frozenset[str]
) -> tuple[float, timedelta]:
    """Return the share and the time that are to be: `before`, with the named fields as they were said.

    Raises:
        Problem: one is missing of a new objective, or cannot be promised.
    """
    asked = merged(objectives_pb2.Objective() if before is None else objective_to_wire(before), said, named)
    missing = [field for field in OBJECTIVE_FIELDS if not is_set(asked, field)]
    if missing and before is None and missing[0] not in named:
        raise Problem(
            f"objective.{missing[0]}",
            "is missing: a new objective has both, as `duly slo set mail.send --within 1s --share 99.9`",
        )
    if not (math.isfinite(asked.share) and 0 < asked.share < 1):
        raise Problem(
            "objective.share", f"must be more than 0 and less than 1, such as 0.999, not {asked.share:g}"
        )
    within = read_duration("objective.start_within", asked.start_within, START_WITHIN[-1])
    if within not in START_WITHIN:
        bounds = ", ".join(map(format_duration, START_WITHIN))
        raise Problem("objective.start_within", f"must be one of {bounds}: starts are counted by these")
    return asked.share, within


def objective_to_wire(objective: Objective) -> objectives_pb2.Objective:
    """Return an objective as the wire has it."""
    message = objectives_pb2.Objective(
        share=objective.share,
        start_within=to_duration(objective.start_within),
        changed_at=to_timestamp(objective.changed_at),
    )
    setattr(message, "lambda", objective.pattern)
    return message


def _deleted(pattern: str, allowed: list[str], gone: set[str]) -> objectives_pb2.DeleteObjectiveResult:
    if pattern in gone:
        return objectives_pb2.DeleteObjectiveResult()
    if pattern not in allowed:
        problem = refused(Action.OPERATE, pattern, "lambdas")
    else:
        message = f"{pattern!r} has no objective of its own: `duly slo objectives` lists those that there are"
        problem = Problem("lambdas", message, task_pb2.ERROR_CODE_UNKNOWN_OBJECTIVE)
    return objectives_pb2.DeleteObjectiveResult(error=problem.to_wire())


def _concerns(scope: Scope, pattern: str) -> bool:
    """Whether a pattern may cover a lambda of which the caller may read all tasks."""
    return any(shared(pattern, each) is not None for each in scope.all_tasks)
