"""The attacker's process: `python -m benchmarks.victim.attacker`. It reads commands, and says what came of them, in lines of JSON."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import itertools
import json
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc

from benchmarks.victim.attacks import ATTACKS, Attack
from benchmarks.victim.installation import ATTACKER, Installation

_CALL_TIMEOUT = 30.0
_PAUSE = 0.001
"""Seconds after a call that failed: an attacker does not wait as it is told."""

Loop = Callable[[], Coroutine[Any, Any, None]]


async def _serve() -> None:
    asked = json.loads(await _line())
    target = Installation(asked["frontend"], asked["console"], Path(asked["authority"]), asked["tokens"])
    answers: Counter[str] = Counter()
    attack = ATTACKS[asked["attack"]]
    make = _calls(attack, target, asked["ids"], answers) if attack.method else _half_posts(target, answers)
    loops = [next(make) for _ in range(attack.at_a_time)]
    _say({"ready": True})
    await _line()
    running = [asyncio.create_task(loop()) for loop in loops]
    _say({"started": len(running)})
    await _line()
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    _say(answers)


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _calls(attack: Attack, target: Installation, ids: list[str], answers: Counter[str]) -> Any:
    requests = itertools.cycle(attack.requests(ids))
    metadata = target.metadata(ATTACKER)
    # without serializers: what is sent was made before
    calls = [target.channel().unary_unary(attack.method) for _ in range(attack.connections)]

    async def repeat(call: Any) -> None:
        while True:
            try:
                await call(next(requests), timeout=_CALL_TIMEOUT, metadata=metadata)
                answers["OK"] += 1
            except grpc.aio.AioRpcError as error:
                answers[error.code().name] += 1
                await asyncio.sleep(_PAUSE)

    for call in itertools.cycle(calls):
        yield lambda call=call: repeat(call)


def _half_posts(target: Installation, answers: Counter[str]) -> Any:
    context = ssl.create_default_context(cafile=str(target.authority))
    host, _, port = target.console.rpartition(":")
    half = (
        f"POST /sign-in HTTP/1.1\r\nHost: {target.console}\r\nOrigin: https://{target.console}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken="
    ).encode()

    async def repeat() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
                writer.write(half)
                said = await reader.read()
                answers[said[9:12].decode() or "closed"] += 1
                writer.transport.abort()
            except OSError:
                answers["closed"] += 1
            await asyncio.sleep(_PAUSE)

    while True:
        yield repeat


if __name__ == "__main__":
    asyncio.run(_serve())
