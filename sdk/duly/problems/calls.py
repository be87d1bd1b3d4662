"""The part of AsyncClient that asks what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.problems.views import Problems
from duly.transport.client_part import ClientPart
from duly_wire.v1 import problems_pb2

if TYPE_CHECKING:
    from collections.abc import Collection

    from duly_wire.enums import ProblemKind


class ProblemCalls(ClientPart):
    """Asks what is wrong now."""

    async def problems(
        self, *, lambda_name: str = "", host: str = "", kinds: Collection[ProblemKind] = ()
    ) -> Problems:
        """Return what is wrong now, the worst first: since when, whom it hits, and what ends it.

            found = await client.problems()
            print(found.status.name, [each.text for each in found.problems])

        - `lambda_name`: only what hits this lambda. `host`: only what is about this host, by its id or its name.
        - `kinds`: only these.

        Frontends look about every ten seconds. Without a role for all lambdas you see what hits those of yours. If Postgres is
        away, the answer says so.

        Raises InvalidTaskError, PermissionDeniedError.
        """
        caller = self._caller
        request = problems_pb2.ListProblemsRequest(host=host, kinds=[int(each) for each in kinds])  # type: ignore[misc]
        setattr(request, "lambda", lambda_name)
        return Problems.from_proto(await caller.call(caller.problems.ListProblems, request))
