"""Plays holders that came back from the dead: sends every call of a holder with real tokens whose claims are over.

Duly's own timers kill such holders before they can send anything, so without this few late writes ever reach the store.
Most of the tasks are held by another claim now. Nothing at all may be written:

- Most calls go to an HSC that nobody else calls. It writes as a user of its own, and triggers record each row that this
  user writes, in any table (`audit.sql`). The live holders' renewals go through other HSCs, so they are not recorded.
- The others go to the HSCs of everybody, where they are written in one group with calls of live holders. There the answers
  tell, the token that a move shows, and the note that a heartbeat leaves.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

import grpc
import psycopg
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, graphs_pb2, hsc_pb2
from tests.chaos.access import HOST
from tests.chaos.kinds import BY_NAME
from tests.chaos.loops import end_loop
from tests.chaos.stack import System
from tests.chaos.topology import STALE_HSC

if TYPE_CHECKING:
    from duly_wire.v1.hsc_pb2_grpc import HscServiceAsyncStub

_EVERY_S = 0.2
_MOST = 12
_CALL_S = 3.0
_RESULTS = 3
"""Calls in a round, each with another result for each claim."""
_ONE_IN_SHARED = 3
"""Rounds that go to the HSCs of all callers."""
_CHECKPOINT = b'"stale"'
_NOTE = "stale heartbeat"
"""`audit.sql` knows its first word."""

# Tokens of claims that are over, of tasks that another claim holds now; some of tasks that nobody holds, or that ended.
_HELD = """
select distinct on (assoc.task_id) assoc.task_id, audit.token, assoc.lambda, assoc.graph is not null
from task_assoc as assoc
join chaos_audit as audit on audit.task_id = assoc.task_id and audit.token <> assoc.token and not audit.entity
order by assoc.task_id, random()
limit %s
"""
_NOT_HELD = """
select audit.task_id, audit.token, split_part(audit.line, '/', 1), false
from chaos_audit as audit
where audit.token is not null and not audit.entity
    and not exists (select from task_assoc as assoc where assoc.task_id = audit.task_id and assoc.token is not null)
order by audit.sequence desc
limit %s
"""
_VOID = (hsc_pb2.RESULT_VERDICT_LOST_CLAIM, hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED)
_NOT_CLAIMED = hsc_pb2.CLAIM_VERDICT_NOT_CLAIMED
_LOST = hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM


class Stale:
    """A claim that is over."""

    def __init__(self, task_id: UUID, token: UUID, lambda_name: str, in_graph: bool) -> None:
        self.claim = hsc_pb2.Claim(task_id=task_id.bytes, token=token.bytes)
        self.in_graph = in_graph
        self.proposal = hsc_pb2.ClaimProposal(claim=self.claim, **{"lambda": lambda_name})

    def beat(self) -> hsc_pb2.HeartbeatItem:
        return hsc_pb2.HeartbeatItem(
            claim=self.claim, progress=0.5, progress_note=_NOTE, checkpoint=_CHECKPOINT
        )

    def result(self, what: str) -> hsc_pb2.TaskResult:
        """Return a result of this kind: an outcome, or a success that writes tasks."""
        outcome = _OUTCOMES[what]
        result = hsc_pb2.TaskResult(claim=self.claim, outcome=outcome, started_at=_started())
        if outcome == hsc_pb2.OUTCOME_SUCCESS:
            result.result, result.result_encoding = b'"stale"', 1
        else:
            result.checkpoint = _CHECKPOINT
        if outcome in _FAILURES:
            result.failure_kind, result.failure_message = 1, "stale"
        if outcome == hsc_pb2.OUTCOME_SNOOZED:
            result.retry_after.CopyFrom(Duration(seconds=1))
        if outcome == hsc_pb2.OUTCOME_COMPLETE_LATER:
            result.completion_hash = bytes(32)
            result.complete_within.CopyFrom(Duration(seconds=1))
        if outcome == hsc_pb2.OUTCOME_WAIT_FOR_EVENT:
            result.event_wait.CopyFrom(
                hsc_pb2.EventWait(name="stale", keys=["stale"], timeout=Duration(seconds=1))
            )
        if what == "children":
            result.children.append(_new_task())
        if what == "nodes":
            result.nodes.append(graphs_pb2.GraphNode(label=f"stale-{new_task_id()}", task=_new_task()))
        return result


_OUTCOMES = {
    "success": hsc_pb2.OUTCOME_SUCCESS,
    "children": hsc_pb2.OUTCOME_SUCCESS,
    "nodes": hsc_pb2.OUTCOME_SUCCESS,
    "retriable failure": hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
    "fatal failure": hsc_pb2.OUTCOME_FATAL_FAILURE,
    "crash": hsc_pb2.OUTCOME_CRASHED,
    "cancel": hsc_pb2.OUTCOME_CANCELLED,
    "snooze": hsc_pb2.OUTCOME_SNOOZED,
    "hand over": hsc_pb2.OUTCOME_COMPLETE_LATER,
    "wait": hsc_pb2.OUTCOME_WAIT_FOR_EVENT,
}
_FAILURES = (hsc_pb2.OUTCOME_RETRIABLE_FAILURE, hsc_pb2.OUTCOME_FATAL_FAILURE, hsc_pb2.OUTCOME_CRASHED)


class Replayer:
    """Starts, and stops."""

    def __init__(self, system: System, random: Random) -> None:
        self._system = system
        self._random = random
        settings = RpcSettings(token_file=system.tokens.file(HOST))
        self._alone = open_channel(system.addresses[STALE_HSC], settings)
        self._shared = open_channel(
            ",".join(system.addresses[name] for name in system.topology.hsc_names()), settings
        )
        self._task: asyncio.Task[None] | None = None
        self.replayed: Counter[str] = Counter()
        """Calls by kind that were answered, of tasks that another claim held."""
        self.problems: list[str] = []
        """What was accepted and should not have been."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._replay_for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self.problems += await end_loop(self._task)
        await self._alone.close()
        await self._shared.close()

    async def _replay_for_ever(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError, grpc.aio.AioRpcError):
                async with await self._system.postgres.connect() as connection:
                    while True:
                        await self._replay(connection)
                        await asyncio.sleep(_EVERY_S)
            await asyncio.sleep(_EVERY_S)

    async def _replay(self, connection: psycopg.AsyncConnection) -> None:
        held = await _look(connection, _HELD)
        stale = [*held, *await _look(connection, _NOT_HELD)][:_MOST]
        if not stale:
            return
        hsc = hsc_stub(self._alone if self._random.randrange(_ONE_IN_SHARED) else self._shared)
        calls = [self._beat, self._release, *[self._set_results] * _RESULTS]
        if self._system.plan.queue == "store":  # with a queue it may be enqueued by then, and may be claimed
            calls.append(self._claim)
        self._random.shuffle(calls)
        for call in calls:
            await call(hsc, stale, len(held))

    def _choose(self, stale: Stale) -> str:
        kinds = [kind for kind in _OUTCOMES if kind != "nodes" or stale.in_graph]
        return self._random.choice(kinds)

    async def _beat(self, hsc: "HscServiceAsyncStub", stale: Sequence[Stale], held: int) -> None:
        request = hsc_pb2.HeartbeatRequest(items=[each.beat() for each in stale], holder="chaos")
        answer = await hsc.Heartbeat(request, timeout=_CALL_S)
        self._judge(["heartbeat"] * len(stale), stale, answer.verdicts, (_LOST,), held)

    async def _claim(self, hsc: "HscServiceAsyncStub", stale: Sequence[Stale], held: int) -> None:
        request = hsc_pb2.ClaimTaskRequest(proposals=[each.proposal for each in stale], holder="chaos")
        answer = await hsc.ClaimTask(request, timeout=_CALL_S)
        verdicts = [each.verdict for each in answer.answers]
        self._judge(["claim"] * len(stale), stale, verdicts, (_NOT_CLAIMED,), held)

    async def _release(self, hsc: "HscServiceAsyncStub", stale: Sequence[Stale], held: int) -> None:
        stopped = [
            hsc_pb2.StoppedRun(
                task_id=each.claim.task_id, started_at=_started(), reason="stale", checkpoint=_CHECKPOINT
            )
            for each in stale
        ]
        request = hsc_pb2.ReleaseRequest(claims=[each.claim for each in stale], stopped=stopped)
        answer = await hsc.Release(request, timeout=_CALL_S)
        self._judge(["release"] * len(stale), stale, answer.verdicts, _VOID, held)

    async def _set_results(self, hsc: "HscServiceAsyncStub", stale: Sequence[Stale], held: int) -> None:
        kinds = [self._choose(each) for each in stale]
        results = [each.result(kind) for each, kind in zip(stale, kinds, strict=True)]
        request = hsc_pb2.SetResultsRequest(results=results)
        answer = await hsc.SetResults(request, timeout=_CALL_S)
        self._judge(kinds, stale, answer.verdicts, _VOID, held)

    def _judge(
        self,
        kinds: Sequence[str],
        stale: Sequence[Stale],
        verdicts: Iterable[int],
        allowed: Sequence[int],
        held: int,
    ) -> None:
        self.replayed.update(kinds[:held])
        for kind, each, verdict in zip(kinds, stale, verdicts, strict=True):
            if verdict not in allowed:
                self.problems.append(
                    f"C3.stale {UUID(bytes=each.claim.task_id)}: a {kind} under an old token was accepted"
                )


async def _look(connection: psycopg.AsyncConnection, statement: str) -> list[Stale]:
    return [Stale(*row) for row in await (await connection.execute(statement, (_MOST,))).fetchall()]


def _new_task() -> frontend_pb2.NewTask:
    kind = BY_NAME["quick"]
    task = {"lambda": kind.lambda_name, "payload": b'{"kind": "quick"}', "payload_encoding": 1}
    return frontend_pb2.NewTask(task_id=str(new_task_id()), **task)


def _started() -> Timestamp:
    started = Timestamp()
    started.GetCurrentTime()
    return started
