"""The part of AsyncClient that is about objectives of lambdas."""

from __future__ import annotations

from datetime import timedelta

from duly.errors import InvalidTaskError
from duly.keep import KEEP, Keep
from duly.slo.views import Objective
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import objectives_pb2


class ObjectiveCalls(ClientPart):
    """Says what is promised of the starts of some lambdas."""

    async def put_objective(
        self,
        lambda_name: str,
        share: float | Keep = KEEP,
        *,
        start_within: timedelta | Keep = KEEP,
    ) -> Objective:
        """Promise that a share of the runs of a lambda begins on time, or change the promise. What is not given stays as it is.

            await client.put_objective("mail.send", 0.999, start_within=timedelta(seconds=1))
            await client.put_objective("reports/*", share=0.95)

        - `lambda_name`: a lambda, which need not be registered yet, or a prefix such as `mail.*` or `team/*`. The longest that covers a
          lambda holds for it.
        - `share`: of the runs, more than 0 and less than 1.
        - `start_within`: a run that begins at most so long after it could is on time. 100 ms to 1 h, in the steps of the setting
          `slo.start_within`.

        A new objective needs both. Runs of the past are judged by it, too. `changed` of the answer names what changed; it is None for a new
        objective. Raises InvalidTaskError, PermissionDeniedError.
        """
        objective = objectives_pb2.Objective()
        setattr(objective, "lambda", lambda_name)
        request = objectives_pb2.PutObjectiveRequest(objective=objective)
        if not isinstance(share, Keep):
            request.objective.share = share
            request.update_mask.paths.append("share")
        if not isinstance(start_within, Keep):
            request.objective.start_within.CopyFrom(to_duration(start_within))
            request.update_mask.paths.append("start_within")
        if not request.update_mask.paths:
            raise InvalidTaskError(f"say what to change of the objective of {lambda_name!r}", "objective")
        answer = await self._caller.call(self._caller.objectives.PutObjective, request)
        changed = None if answer.created else tuple(answer.changed_fields.paths)
        return Objective.from_proto(answer.objective, answer.lambdas, changed)

    async def delete_objective(self, lambda_name: str) -> None:
        """Remove the objective of a lambda or prefix: a shorter prefix or the settings hold again. Raises UnknownObjectiveError."""
        request = objectives_pb2.DeleteObjectivesRequest(lambdas=[lambda_name])
        (result,) = (await self._caller.call(self._caller.objectives.DeleteObjectives, request)).results
        error_mapping.check(result)

    async def objectives(self, *, cell: str = "") -> list[Objective]:
        """Return the objectives of lambdas and prefixes, by name: those that may concern what you may read.

        `cell`: only those that live there; without cells it is refused.
        """
        request = objectives_pb2.ListObjectivesRequest(cell=cell)
        answer = await self._caller.call(self._caller.objectives.ListObjectives, request)
        return [Objective.from_proto(each) for each in answer.objectives]
