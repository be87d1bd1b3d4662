"""Plays a holder that came back from the dead: sends what was right under tokens whose claims are over.

Duly's own timers kill such holders before they can send anything, so without this few late writes ever reach the store.
It picks tasks that somebody else holds now: nothing of theirs may change.
"""

import asyncio
from contextlib import suppress
from uuid import UUID

import grpc
import psycopg

from duly.v1 import hsc_pb2
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from tests.chaos.stack import System

_EVERY_S = 0.4
_MOST = 10
_CALL_S = 2.0
_BEATS = 5
_MOST_RENEWALS = 2
"""By the holder itself while so many beats of ours go by, and one to spare."""

_STALE = """
select distinct assoc.task_id, audit.token
from task_assoc as assoc
join chaos_audit as audit on audit.task_id = assoc.task_id and audit.token <> assoc.token and not audit.entity
limit %s
"""
_LEASE = "select token, next_trigger_at from task_assoc where task_id = %s"
_APPLIED = hsc_pb2.RESULT_VERDICT_APPLIED


class Replayer:
    """Starts, and stops."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._channel = open_channel(
            ",".join(system.addresses[name] for name in system.topology.hsc_names()), RpcSettings()
        )
        self._hsc = hsc_stub(self._channel)
        self._task: asyncio.Task[None] | None = None
        self.replayed = 0
        self.problems: list[str] = []
        """What was accepted and should not have been."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._replay_for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    async def _replay_for_ever(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError, grpc.aio.AioRpcError):
                async with await self._system.postgres.connect() as connection:
                    while True:
                        await self._look(connection)
                        await asyncio.sleep(_EVERY_S)
            await asyncio.sleep(_EVERY_S)

    async def _look(self, connection: psycopg.AsyncConnection) -> None:
        stale = await (await connection.execute(_STALE, (_MOST,))).fetchall()
        if not stale:
            return
        claims = [hsc_pb2.Claim(task_id=task_id.bytes, token=token.bytes) for task_id, token in stale]
        await self._beat(connection, claims[0])
        results = [
            hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS, result=b'"stale"')
            for claim in claims
        ]
        self.replayed += len(claims)
        set_ = await self._hsc.SetResults(hsc_pb2.SetResultsRequest(results=results), timeout=_CALL_S)
        self._judge("a result", claims, set_.verdicts)
        released = await self._hsc.Release(hsc_pb2.ReleaseRequest(claims=claims), timeout=_CALL_S)
        self._judge("a release", claims, released.verdicts)

    async def _beat(self, connection: psycopg.AsyncConnection, claim: hsc_pb2.Claim) -> None:
        """Its holder renews a lease once a period; if each of our beats renews it as well, they are accepted."""
        task_id = UUID(bytes=claim.task_id)
        request = hsc_pb2.HeartbeatRequest(items=[hsc_pb2.HeartbeatItem(claim=claim)], holder="chaos")
        leases = []
        for _ in range(_BEATS + 1):
            row = await (await connection.execute(_LEASE, (task_id,))).fetchone()
            if row is None or row[0] is None or row[0].bytes == claim.token:
                return
            leases.append(row)
            answer = await self._hsc.Heartbeat(request, timeout=_CALL_S)
            if hsc_pb2.HEARTBEAT_VERDICT_KEPT in answer.verdicts:
                self.problems.append(f"C3.stale {task_id}: a heartbeat under an old token was answered KEPT")
        if len({token for token, _ in leases}) == 1 and len(set(leases)) > 1 + _MOST_RENEWALS:
            self.problems.append(
                f"C3.renewed {task_id}: {_BEATS} heartbeats under an old token changed its next trigger "
                f"{len(set(leases)) - 1} times"
            )

    def _judge(self, what: str, claims: "list[hsc_pb2.Claim]", verdicts: "object") -> None:
        for claim, verdict in zip(claims, verdicts, strict=True):  # type: ignore[call-overload]
            if verdict == _APPLIED:
                self.problems.append(
                    f"C3.stale {UUID(bytes=claim.task_id)}: {what} under an old token was applied"
                )
