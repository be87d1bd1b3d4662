"""The part of AsyncClient that is about lambdas."""

from __future__ import annotations

import math
from collections.abc import Mapping

from duly.errors import InvalidTaskError
from duly.lambdas.info import FairKey, LambdaDeletion, LambdaDetail, LambdaInfo
from duly.tasks.arguments import wrong_type
from duly.tasks.bulk import run_pages
from duly.tasks.filters import CancelFilter, filtered
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.enums import TaskStatus
from duly_wire.v1 import frontend_pb2, registry_pb2


class LambdaCalls(ClientPart):
    """Reads and changes the registry. Workers register their lambdas by themselves."""

    async def lambdas(self, *, cell: str = "") -> list[LambdaInfo]:
        """Return the registered lambdas with their policies; `cell`: only those that live there."""
        caller = self._caller
        request = registry_pb2.ListLambdasRequest(cell=cell)
        response = await caller.call(caller.registry.ListLambdas, request)
        return [LambdaInfo.from_proto(registered) for registered in response.lambdas]

    async def get_lambda(self, name: str) -> LambdaDetail:
        """Return a lambda with the versions that workers declared; one that was deleted, too.

        Raises UnknownLambdaError, InvalidTaskError.
        """
        caller = self._caller
        request = registry_pb2.GetLambdaRequest(name=name)
        response = await caller.call(caller.registry.GetLambda, request)
        error_mapping.check(response)
        return LambdaDetail.from_proto(name, response)

    async def transfer_lambda(self, name: str, owner: str, *, expected_revision: int | None = None) -> None:
        """Give a lambda to another owner: workers that declare any other are refused when they start.

        `expected_revision`: only if it is the lambda's. Raises UnknownLambdaError, LambdaConflictError.
        """
        request = registry_pb2.UpdateLambdaRequest(
            name=name, owner=owner, expected_revision=expected_revision
        )
        await self._update(request)

    async def roll_back_lambda(
        self, name: str, version: str, *, expected_revision: int | None = None
    ) -> None:
        """Put a version in force that workers declared: its policy holds at once, and the versions after it stay out.

        `expected_revision`: only if it is the lambda's. Raises UnknownLambdaError, LambdaConflictError, and InvalidTaskError
        for a version that no worker declared.
        """
        request = registry_pb2.UpdateLambdaRequest(
            name=name, version=version, expected_revision=expected_revision
        )
        await self._update(request)

    async def ramp_lambda(
        self,
        name: str,
        version: str,
        percent: float,
        *,
        force: bool = False,
        expected_revision: int | None = None,
    ) -> None:
        """Send so much of the new tasks of a lambda to one of its versions: 0 to 100 percent, with at most one decimal.

        Workers with `App(version=..., pinned="only")` run them. With more percent, those that went there still do, and more with them. Tasks
        of one session, or of one fair key, go together. Tasks with an idempotency key or a unique key stay, as do nodes, ticks, children, and
        tasks with a domain or labels.

        - `force`: though no live worker serves the version.
        - `expected_revision`: only if it is the lambda's.

        Raises UnknownLambdaError, LambdaConflictError, and InvalidTaskError for a version that no worker serves.
        """
        ramp = registry_pb2.LambdaRamp(version=version, permille=_permille(percent))
        request = registry_pb2.UpdateLambdaRequest(
            name=name, ramp=ramp, ramp_without_host=force, expected_revision=expected_revision
        )
        await self._update(request)

    async def end_ramp(self, name: str, *, expected_revision: int | None = None) -> None:
        """Send no more new tasks of a lambda to a version. Those that were sent stay there.

        `expected_revision`: only if it is the lambda's. Raises UnknownLambdaError, LambdaConflictError.
        """
        request = registry_pb2.UpdateLambdaRequest(
            name=name, ramp=registry_pb2.LambdaRamp(), expected_revision=expected_revision
        )
        await self._update(request)

    async def _update(self, request: registry_pb2.UpdateLambdaRequest) -> None:
        caller = self._caller
        error_mapping.check(await caller.call(caller.registry.UpdateLambda, request))

    async def delete_lambda(
        self,
        name: str,
        *,
        cancel_tasks: bool = False,
        dry_run: bool = False,
        expected_revision: int | None = None,
    ) -> LambdaDeletion:
        """Delete a lambda and its time tables, and return what it had. Tasks that ended stay, and can be read.

        - `cancel_tasks`: cancel the tasks that have not ended, and ask the callbacks of those that run to stop. Without it
          such a lambda is not deleted. Repeat the call if it breaks off.
        - `dry_run`: only count.
        - `expected_revision`: only if it is the lambda's.

        Workers that declare it with a version that is not new do not bring it back. Raises UnknownLambdaError,
        LambdaInUseError, LambdaConflictError.
        """
        caller = self._caller
        request = registry_pb2.DeleteLambdaRequest(
            name=name, dry_run=dry_run, despite_tasks=cancel_tasks, expected_revision=expected_revision
        )
        response = await caller.call(caller.registry.DeleteLambda, request)
        error_mapping.check(response)
        cancelled = 0
        if cancel_tasks and not dry_run:
            for queue in response.queues:
                which = CancelFilter(
                    lambda_name=queue, statuses=[each for each in TaskStatus if not each.is_final]
                )
                wanted = filtered(frontend_pb2.CancelTasksRequest(), which, CancelFilter)
                cancelled += await run_pages(caller, wanted, None, dry_run=False)
        return LambdaDeletion.from_proto(name, response, cancelled)

    async def restore_lambda(self, name: str) -> None:
        """Let workers register a deleted lambda again, whatever version they have.

        Raises UnknownLambdaError if no lambda of this name was deleted.
        """
        caller = self._caller
        request = registry_pb2.RestoreLambdaRequest(name=name)
        error_mapping.check(await caller.call(caller.registry.RestoreLambda, request))

    async def set_fair_weights(self, name: str, weights: Mapping[str, int | None]) -> None:
        """Set how many tasks of a fair key start in its turn, 1 to 1,000; None: 1 again. Other keys keep their weights.

        The key "" is that of tasks without one. Raises UnknownLambdaError, InvalidTaskError.
        """
        caller = self._caller
        request = registry_pb2.SetFairWeightsRequest(
            name=name,
            weights=[
                registry_pb2.FairWeight(fair_key=key, weight=weight)
                for key, weight in weights.items()
                if weight is not None
            ],
            removed_keys=[key for key, weight in weights.items() if weight is None],
        )
        error_mapping.check(await caller.call(caller.registry.SetFairWeights, request))

    async def fair_keys(self, name: str, *, max_keys: int = 1_000) -> list[FairKey]:
        """Return the fair keys of a lambda that have a weight, or tasks that wait: by key, and `max_keys` of those that wait.

        Raises InvalidTaskError.
        """
        caller = self._caller
        request = registry_pb2.ListFairKeysRequest(name=name)
        weights: dict[str, int] = {}
        waiting: dict[str, registry_pb2.WaitingFairKey] = {}
        while len(waiting) < max_keys:
            request.page_size = min(200, max_keys - len(waiting))
            response = await caller.call(caller.registry.ListFairKeys, request)
            error_mapping.check(response)
            weights |= {each.fair_key: each.weight for each in response.weights}
            waiting |= {each.fair_key: each for each in response.keys}
            if not response.next_page_token:
                break
            request.page_token = response.next_page_token
        return [
            FairKey.from_proto(key, weights.get(key, 1), waiting.get(key))
            for key in sorted(weights.keys() | waiting.keys())
        ]


def _permille(percent: float) -> int:
    """Return tenths of a percent. Raises InvalidTaskError for what is not from 0 to 100, and for more decimals than one."""
    if isinstance(percent, bool) or not isinstance(percent, int | float):
        raise wrong_type("percent", percent, "a number from 0 to 100")
    permille = round(percent * 10) if math.isfinite(percent) else -1
    if not 0 <= permille <= 1_000 or abs(permille - percent * 10) > 1e-9:
        raise InvalidTaskError(
            f"percent: {percent:g} is no part: use 0 to 100, with at most one decimal", "percent"
        )
    return permille
