"""ProblemService: what is wrong now, as the incident board has it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from duly_core.access.current import are_roles_known, require, restriction
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError, StoreUnavailableError
from duly_core.notifications import store as store_notifications
from duly_core.notifications.rules import Message
from duly_core.notifications.settings import MOST_TARGETS
from duly_core.problems import store as store_problems
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, clean, found
from duly_core.problems.store import Board
from duly_core.process.clock import seconds_since_boot
from duly_core.rpc.requests.checks import check_count, check_text
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.notifications.wire import target_to_wire
from duly_frontend.problems.wire import problem_to_wire
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import problems_pb2, problems_pb2_grpc

_MOST_SHOWN = 200
_MOST_KINDS = 100
_LONGEST_HOST = 255
_PATIENCE = timedelta(seconds=2)
"""With a store that stands still: the caller is to hear of it before its own time is over."""


def _now() -> datetime:
    return datetime.now(UTC)


class ProblemServicer(problems_pb2_grpc.ProblemServiceServicer):
    """Reads what a Frontend found, and answers for itself when the store does not."""

    def __init__(
        self,
        stores: FrontendStores,
        wall_clock: Callable[[], datetime] = _now,
        patience: timedelta = _PATIENCE,
        deliveries: Deliveries | None = None,
    ) -> None:
        """Make one.

        Args:
            stores: pools of connections.
            wall_clock: is asked since when the store is away.
            patience: how long it may take to answer.
            deliveries: of notifications; None: there are no targets.
        """
        self._deliveries = deliveries
        self._patience = patience
        self._stores = stores
        self._wall_clock = wall_clock
        self._last: Board | None = None
        self._away_since: datetime | None = None

    async def ListProblems(  # noqa: N802 (the wire's name)
        self, request: problems_pb2.ListProblemsRequest, _context: Context
    ) -> problems_pb2.ListProblemsResponse:
        if not are_roles_known():
            return self._away_to_unknown()
        wanted = _read(request)
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                board = await store_problems.read(self._stores.reads)
        except TimeoutError:
            return self._away(f"no answer within {self._patience.total_seconds():g} s")
        except StoreUnavailableError as error:
            return self._away(str(error))
        self._last, self._away_since = board, None
        shown = [seen for each in board.problems if wanted(each) and (seen := _seen(each)) is not None]
        response = _answer(shown, board.now)
        response.is_stale = board.is_stale
        response.computed_by = board.computed_by
        if board.computed_at is None:
            response.status = problems_pb2.PROBLEM_STATUS_UNKNOWN
        else:
            response.as_of.CopyFrom(to_timestamp(board.computed_at))
            response.age.CopyFrom(to_duration(board.now - board.computed_at))
        if board.took is not None:
            response.took.CopyFrom(to_duration(board.took))
        return response

    async def ListNotificationTargets(  # noqa: N802
        self, _request: problems_pb2.ListNotificationTargetsRequest, _context: Context
    ) -> problems_pb2.ListNotificationTargetsResponse:
        targets = {} if self._deliveries is None else self._deliveries.targets
        states = await store_notifications.read_targets(self._stores.reads, [*targets]) if targets else {}
        return problems_pb2.ListNotificationTargetsResponse(
            targets=[target_to_wire(name, targets[name], states.get(name)) for name in sorted(targets)]
        )

    async def TestNotificationTargets(  # noqa: N802
        self, request: problems_pb2.TestNotificationTargetsRequest, _context: Context
    ) -> problems_pb2.TestNotificationTargetsResponse:
        check_count("names", len(request.names), MOST_TARGETS)
        results = await asyncio.gather(*map(self._test, request.names))
        return problems_pb2.TestNotificationTargetsResponse(results=results)

    async def _test(self, name: str) -> problems_pb2.TestNotificationTargetResult:
        deliveries = self._deliveries
        if deliveries is None or name not in deliveries.targets:
            return problems_pb2.TestNotificationTargetResult(error=_no_target(name, deliveries).to_wire())
        message = Message(
            message_id=str(uuid4()), created_at=self._wall_clock(), items=(), counts={}, worst=0
        )
        began = seconds_since_boot()
        outcome = await deliveries.deliver(name, message, 1)
        took = timedelta(seconds=seconds_since_boot() - began)
        with suppress(StoreUnavailableError):  # what came of the test is known all the same
            await store_notifications.note_test(self._stores.writes, name, outcome.failure)
        return problems_pb2.TestNotificationTargetResult(
            failure=outcome.failure, took=to_duration(took), message_id=message.message_id
        )

    def _away_to_unknown(self) -> problems_pb2.ListProblemsResponse:
        """Say that the store does not answer to a caller whose roles cannot be read: since when, and nothing of what is in it."""
        now = self._wall_clock()
        self._away_since = self._away_since or now
        problem = found(
            Kind.STORE_AWAY, Severity.CRITICAL, self._away_since, error="the roles of callers cannot be read"
        )
        response = _answer([problem], now)
        response.is_stale = True
        return response

    def _away(self, error: str) -> problems_pb2.ListProblemsResponse:
        """Say that the store does not answer: all who may read anything are told, for it hits all."""
        now = self._wall_clock()
        self._away_since = self._away_since or now
        problem = found(Kind.STORE_AWAY, Severity.CRITICAL, self._away_since, error=error)
        response = _answer([problem], now)
        response.is_stale = True
        if self._last is not None and self._last.computed_at is not None:
            response.as_of.CopyFrom(to_timestamp(self._last.computed_at))
            response.computed_by = self._last.computed_by
        return response


def _no_target(name: str, deliveries: Deliveries | None) -> Problem:
    names = [] if deliveries is None else sorted(deliveries.targets)
    there = f"there are {', '.join(names)}" if names else "the Frontend has none in its settings"
    return Problem("names", f"no target {clean(name[:64])!r} of notifications: {there}")


def _seen(problem: FoundProblem) -> FoundProblem | None:
    """Return what the caller may see of a problem; messages of callbacks may hold what payloads say."""
    seen = problem.seen_by(restriction(Action.READ))
    reads_payloads = restriction(Action.READ_PAYLOAD)
    if seen is None or "message" not in seen.values:
        return seen
    if reads_payloads is None or reads_payloads.covers_all_of(seen.subject):
        return seen
    return replace(seen, values={**seen.values, "message": ""})


def _answer(problems: Sequence[FoundProblem], now: datetime) -> problems_pb2.ListProblemsResponse:
    wrong = sum(each.severity > Severity.INFORMATION for each in problems)
    return problems_pb2.ListProblemsResponse(
        status=problems_pb2.PROBLEM_STATUS_PROBLEMS if wrong else problems_pb2.PROBLEM_STATUS_HEALTHY,
        problems=[problem_to_wire(each, now) for each in problems[:_MOST_SHOWN]],
        problem_count=wrong,
        left_out=max(0, len(problems) - _MOST_SHOWN),
    )


def _read(request: problems_pb2.ListProblemsRequest) -> Callable[[FoundProblem], bool]:
    """Return whether a problem is asked for.

    Raises:
        Problem: the request is invalid.
        PermissionDeniedError: the caller may not read the lambda.
    """
    lambda_name = getattr(request, "lambda")
    if lambda_name:
        check_lambda_name("lambda", lambda_name)
        require(Action.READ, lambda_name)
    check_text("host", request.host, _LONGEST_HOST)
    if request.kinds:
        check_count("kinds", len(request.kinds), _MOST_KINDS)
    if unknown := {*map(int, request.kinds)} - {*map(int, Kind)}:
        raise InvalidRequestError("kinds", f"must be kinds of problems: {min(unknown)} is none")
    kinds = frozenset(map(int, request.kinds))

    def is_wanted(problem: FoundProblem) -> bool:
        return (
            (not lambda_name or problem.concerns(lambda_name))
            and (not request.host or problem.is_about(request.host))
            and (not kinds or problem.kind in kinds)
        )

    return is_wanted
