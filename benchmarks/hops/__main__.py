"""`python -m benchmarks.hops ROLE`: one process of the chain; what it must know comes as a line of JSON on stdin.

It writes a line when it is ready, and what it found as a line of JSON when it is told to stop, or is done.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import json
import signal
import sys

import uvloop

from benchmarks.hops.roles import ALONE, ROLES


async def main() -> None:
    """Play the part."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    told = json.loads(sys.stdin.readline())
    found = await (ROLES | ALONE)[sys.argv[1]](told, lambda: print("ready", flush=True), stop)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
