"""A receiver of HTTP lambdas that does nothing: `python -m benchmarks.http_receiver`; prints its port."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import sys

from aiohttp import web


async def _serve() -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started this is gone
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
