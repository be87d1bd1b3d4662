"""Serves the nodes of graphs that wait for an event and have no callback: claims them as a host does, and writes what came of them."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from duly_core.errors import StoreUnavailableError
from duly_core.events.rules import EventWait
from duly_core.events.wait_nodes import WAIT_NAME, WaitNode, is_wait_lambda, read_wait_node, received_by
from duly_core.graphs.predecessors import GraphPlace
from duly_core.lambdas.names import namespace_of
from duly_core.lambdas.store import list_names
from duly_core.postgres.pool import Store
from duly_core.tasks.claim_tokens import new_prefix
from duly_core.tasks.claims import Caller
from duly_core.tasks.task import Applied, ClaimedTask, Encoding, Result
from duly_hsc.work.caller_groups import Claimed
from duly_wire.encrypted_events import EncryptedEvents, SentValue, written
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import TaskId, id_text

HOLDER = "hsc"
_MOST = 200
_LOOK_AGAIN = timedelta(seconds=30)
"""For lambdas of such nodes. A new one is told, so this is for lost words only."""
_LONGEST_CLAIM = timedelta(seconds=20)
_WRITE_WITHIN = 10.0
_MESSAGE = 1_024
_RESULT_LIMIT = 1024 * 1024


class Hsc(Protocol):
    """What it needs of the service."""

    async def claim_for(
        self, caller: Caller, lambdas: frozenset[str], most: int, timeout: timedelta
    ) -> Claimed:
        """Wait until something of these lambdas is due, and claim it."""

    async def places(self, tasks: Sequence[ClaimedTask]) -> dict[TaskId, GraphPlace]:
        """Return where these stand in their graphs."""

    async def write(self, results: Sequence[Result], within: float) -> list[Applied]:
        """Write results."""

    async def release_under(self, prefixes: Sequence[bytes]) -> None:
        """Hand back what was claimed under these."""

    def give_up(self, tasks: Sequence[ClaimedTask]) -> None:
        """Hand claims back."""


class WaitNodes:
    """`run_once` serves what is due, or waits for it; `wake` and `stop` end the wait."""

    def __init__(self, store: Store, hsc: Hsc, stop: asyncio.Event) -> None:
        """Make one; `store` tells the lambdas."""
        self._store = store
        self._hsc = hsc
        self._stop = stop
        self.wake = asyncio.Event()
        self._lost: bytes | None = None
        """The prefix of a claim whose outcome is unknown: left alone, its lease would run out and count as a crash."""

    def may_have_changed(self) -> None:
        """Read the lambdas again."""
        self.wake.set()

    async def run_once(self) -> timedelta:
        """Serve the nodes that are due, once; return when to come back.

        Raises:
            StoreUnavailableError: some are not served yet.
            OverloadedError: the same.
        """
        lambdas = frozenset(name for name in await list_names(self._store) if is_wait_lambda(name))
        if not lambdas:
            return _LOOK_AGAIN
        await self.serve(lambdas, _LONGEST_CLAIM)
        return timedelta()

    async def serve(self, lambdas: frozenset[str], timeout: timedelta) -> bool:
        """Serve nodes of these lambdas that are due; return whether there were any within `timeout`.

        Raises:
            StoreUnavailableError: some are not served yet.
            OverloadedError: the same.
        """
        claimed = await self._claim(lambdas, timeout)
        if claimed is None or not claimed.tasks:
            return False
        await self._write(claimed.tasks)
        return True

    async def _claim(self, lambdas: frozenset[str], timeout: timedelta) -> Claimed | None:
        """Claim what is due, or wait for it; None: there is something else to do."""
        if self._lost is not None:
            await self._hsc.release_under([self._lost])
            self._lost = None
        caller = Caller(HOLDER, new_prefix())
        claiming = asyncio.ensure_future(self._hsc.claim_for(caller, lambdas, _MOST, timeout))
        ends = [asyncio.ensure_future(event.wait()) for event in (self._stop, self.wake)]
        try:
            await asyncio.wait([claiming, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            claiming.cancel()  # does nothing to one that is done
        await asyncio.wait([claiming])
        if claiming.cancelled():
            return None
        try:
            return claiming.result()
        except StoreUnavailableError:
            self._lost = caller.token_prefix
            raise

    async def _write(self, tasks: Sequence[ClaimedTask]) -> None:
        try:
            places = await self._hsc.places(tasks)
            await self._hsc.write([_result(task, places.get(task.task_id)) for task in tasks], _WRITE_WITHIN)
        except BaseException:
            # what was written all the same is not: the token holds no more
            self._hsc.give_up(tasks)
            raise


def _result(task: ClaimedTask, place: GraphPlace | None) -> Result:
    """Return what comes of a node that was claimed."""
    try:
        node = read_wait_node(task.payload if task.encoding == Encoding.JSON else b"")
        keys = node.keys or (_own_key(task, place),)
    except ValueError as error:
        return _failed(task, FailureKind.BAD_PAYLOAD, f"what it waits for {error}")
    received = received_by(task.received)
    events = {each["key"]: each for each in received if not each.get("timed_out")}
    missing = tuple(key for key in keys if key not in events)
    if missing and (node.needs == "all" or not events):
        if len(events) < len(received):
            return _late(task, node, missing)
        # a redrive keeps what it received, and waits for the rest
        wait = EventWait(WAIT_NAME, missing, needs_all=node.needs == "all", timeout=node.timeout)
        return Result(task.task_id, task.token, Outcome.WAIT_FOR_EVENT, event_wait=wait)
    return _answered(task, node, [events[key] for key in keys if key in events])


def _own_key(task: ClaimedTask, place: GraphPlace | None) -> str:
    if task.graph_id is None or place is None:
        raise ValueError("must have a key: this task is no node of a graph")
    return f"{id_text(task.graph_id)}/{place.label}"


def _late(task: ClaimedTask, node: WaitNode, missing: Sequence[str]) -> Result:
    if node.on_timeout == "succeed":
        return Result(task.task_id, task.token, Outcome.SUCCESS, b"null", Encoding.JSON)
    joined = " or ".join(missing)
    late = _failed(
        task, FailureKind.EVENT_TIMEOUT, f"no event {joined} came within {node.timeout}"[:_MESSAGE]
    )
    return late._replace(skips=node.on_timeout == "skip")


def _answered(task: ClaimedTask, node: WaitNode, events: Sequence[Mapping[str, Any]]) -> Result:
    encrypted = [each for each in events if each["encoding"] == Encoding.ENCRYPTED]
    if encrypted:
        return _encrypted(task, node, events, b64decode(encrypted[0]["value"]))
    if not node.needs:
        (event,) = events
        value, encoding = b64decode(event["value"]), Encoding(event["encoding"])
        return Result(task.task_id, task.token, Outcome.SUCCESS, value, encoding)
    try:
        values = {each["key"]: _json_of(each) for each in events}
    except (ValueError, RecursionError):
        words = "the value of an event is no JSON: where a node waits for several keys, send JSON to each"
        return _failed(task, FailureKind.BAD_RESULT, words)
    result: object = values
    if node.needs == "first":
        ((key, only),) = values.items()
        result = {"key": key, "value": only}
    try:
        encoded = json.dumps(result, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):  # 1e400 is a number in JSON, and none that can be written again
        return _failed(task, FailureKind.BAD_RESULT, "the value of an event has a number that is too large")
    return _succeeded(task, encoded, Encoding.JSON)


def _encrypted(
    task: ClaimedTask, node: WaitNode, events: Sequence[Mapping[str, Any]], encrypted: bytes
) -> Result:
    """Return the values as they were sent: who reads the result has the key, and this server has none."""
    values = tuple(SentValue(each["key"], each["encoding"], b64decode(each["value"])) for each in events)
    received = EncryptedEvents(namespace_of(task.lambda_name), node.needs, values)
    return _succeeded(task, written(received, encrypted), Encoding.ENCRYPTED)


def _succeeded(task: ClaimedTask, result: bytes, encoding: Encoding) -> Result:
    if len(result) > _RESULT_LIMIT:
        words = (
            f"the values of its events have {len(result):,} bytes together, the limit is {_RESULT_LIMIT:,}"
        )
        return _failed(task, FailureKind.BAD_RESULT, words)
    return Result(task.task_id, task.token, Outcome.SUCCESS, result, encoding)


def _json_of(event: Mapping[str, Any]) -> object:
    """Read the value of an event, which a sender wrote: what says to be JSON may be none.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is too deep.
    """
    if event["encoding"] != Encoding.JSON:
        raise ValueError("bytes")
    return json.loads(b64decode(event["value"]), parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _failed(task: ClaimedTask, kind: FailureKind, message: str) -> Result:
    return Result(task.task_id, task.token, Outcome.FATAL_FAILURE, failure_kind=kind, failure_message=message)
