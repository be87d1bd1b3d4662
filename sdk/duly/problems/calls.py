"""The part of AsyncClient that asks what is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from duly.problems.views import NotificationTarget, NotificationTest, Problems
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly.transport.message_fields import view
from duly_wire.v1 import problems_pb2

if TYPE_CHECKING:
    from collections.abc import Collection

    from duly_wire.enums import ProblemKind


_LONGEST_TEST = timedelta(seconds=45)
"""A Frontend gives a delivery up before."""


class ProblemCalls(ClientPart):
    """Asks what is wrong now, and who is told of it."""

    async def problems(
        self, *, lambda_name: str = "", host: str = "", kinds: Collection[ProblemKind] = (), cell: str = ""
    ) -> Problems:
        """Return what is wrong now, the worst first: since when, whom it hits, and what ends it.

            found = await client.problems()
            print(found.status.name, [each.text for each in found.problems])

        - `lambda_name`: only what hits this lambda. `host`: only what is about this host, by its id or its name.
        - `kinds`: only these. `cell`: only what is wrong there; without cells it is refused.

        Frontends look about every ten seconds. Without a role for all lambdas you see what hits those of yours. If Postgres is
        away, the answer says so.

        Raises InvalidTaskError, PermissionDeniedError.
        """
        caller = self._caller
        request = problems_pb2.ListProblemsRequest(
            host=host,
            kinds=[int(each) for each in kinds],  # type: ignore[misc]  # to mypy a number is no member
            cell=cell,
        )
        setattr(request, "lambda", lambda_name)
        return Problems.from_proto(await caller.call(caller.problems.ListProblems, request))

    async def notification_targets(self) -> list[NotificationTarget]:
        """Return who is told of problems by this Frontend's settings, and how the last deliveries went.

        Raises PermissionDeniedError.
        """
        caller = self._caller
        request = problems_pb2.ListNotificationTargetsRequest()
        answer = await caller.call(caller.problems.ListNotificationTargets, request)
        return [view(NotificationTarget, each) for each in answer.targets]

    async def test_notification_target(self, name: str) -> NotificationTest:
        """Send a test message to a target, and return what came of it.

        The call is not repeated: after UnavailableError the test may have been sent.

        Raises InvalidTaskError (there is no such target), PermissionDeniedError, UnavailableError.
        """
        caller = self._caller
        request = problems_pb2.TestNotificationTargetsRequest(names=[name])
        answer = await caller.call(
            caller.problems.TestNotificationTargets,
            request,
            _LONGEST_TEST,
            one_try=_LONGEST_TEST,
            again=False,
        )
        (result,) = answer.results
        if result.HasField("error"):
            raise error_mapping.from_item(result.error)
        return view(NotificationTest, result, name=name)
