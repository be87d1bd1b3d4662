"""The weights of a lambda's fair keys, and which keys have tasks that wait."""

from collections.abc import Iterable

from duly_core.access.current import current_access, denied
from duly_core.access.roles import Action
from duly_core.fairness.store import HEAVIEST, MOST_WEIGHTS, fair_weights, waiting_keys
from duly_core.lambdas.names import base_name
from duly_core.rpc.requests.checks import check_text
from duly_core.rpc.requests.names import check_lambda_name, unknown_lambda
from duly_core.rpc.requests.new_tasks import LONGEST_FAIR_KEY
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.turns import TooManyWeightsError, put_fair_weights
from duly_frontend.events import log
from duly_frontend.lambdas.administration import may_change
from duly_frontend.lists import page_token
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import registry_pb2, task_pb2

_MOST_KEYS = 200


class LambdaFairness:
    """Each method raises Problem for what it refuses."""

    def __init__(self, stores: FrontendStores) -> None:
        self._stores = stores

    async def set_weights(self, asked: registry_pb2.SetFairWeightsRequest) -> None:
        """Set the weights of some keys."""
        check_lambda_name("name", asked.name)
        if base_name(asked.name) != asked.name:
            raise Problem(
                "name", f"must be a lambda: the weights of {base_name(asked.name)} hold for its versions, too"
            )
        may_change(asked.name)
        weights = {}
        for place, each in enumerate(asked.weights):
            _check_key(f"weights[{place}].fair_key", each.fair_key)
            if not 1 <= each.weight <= HEAVIEST:
                raise Problem(
                    f"weights[{place}].weight",
                    f"must be 1 to {HEAVIEST:,}, not {each.weight:,}: to hold back the tasks of a key, cancel them, or give "
                    "them a collection and set a gate (`duly gates set`)",
                )
            weights[each.fair_key] = each.weight
        for place, key in enumerate(asked.removed_keys):
            _check_key(f"removed_keys[{place}]", key)
        _check_once([*(each.fair_key for each in asked.weights), *asked.removed_keys])
        if not weights and not asked.removed_keys:
            raise Problem("weights", "is empty: name a key and its weight")
        try:
            is_known = await put_fair_weights(self._stores.writes, asked.name, weights, asked.removed_keys)
        except TooManyWeightsError:
            raise Problem(
                "weights",
                f"a lambda may have {MOST_WEIGHTS:,} weights: remove some, or give the key a lambda of its own",
            ) from None
        if not is_known:
            raise Problem("name", unknown_lambda(asked.name), task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)
        log.info(
            "weights of fair keys set",
            **{"lambda": asked.name},
            keys=len(weights),
            removed=len(asked.removed_keys),
        )

    async def list_keys(self, asked: registry_pb2.ListFairKeysRequest) -> registry_pb2.ListFairKeysResponse:
        """List weights, and keys with tasks that wait."""
        check_lambda_name("name", asked.name)
        access = current_access()
        if not access.may(Action.READ, base_name(asked.name)):
            raise denied(access, Action.READ, base_name(asked.name))
        if not 0 <= asked.page_size <= _MOST_KEYS:
            raise Problem("page_size", f"must be 1 to {_MOST_KEYS}, not {asked.page_size:,}")
        size = asked.page_size or _MOST_KEYS
        after = page_token.read_name(asked.page_token)[1:] if asked.page_token else None
        _check_key("page_token", after or "")
        async with self._stores.listing("ListFairKeys") as lists:
            weights = await fair_weights(lists, base_name(asked.name))
            found = await waiting_keys(lists, asked.name, after, size + 1)
        return registry_pb2.ListFairKeysResponse(
            weights=[registry_pb2.FairWeight(fair_key=key, weight=weight) for key, weight in weights.items()],
            keys=[
                registry_pb2.WaitingFairKey(
                    fair_key=each.fair_key,
                    waiting=each.waiting,
                    has_more=each.has_more,
                    first_due_at=to_timestamp(each.first_at),
                )
                for each in found[:size]
            ],
            next_page_token=page_token.write_name(f"={found[size - 1].fair_key}")
            if len(found) > size
            else "",
        )


def _check_key(field: str, key: str) -> None:
    if key:
        check_text(field, key, LONGEST_FAIR_KEY)


def _check_once(keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise Problem("weights", f"the key {key!r} is named twice")
        seen.add(key)
