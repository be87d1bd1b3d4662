"""Open pages as their scripts behave: a stream, `/live`, and the overview as a fragment; no browser runs."""

import asyncio
import time
from contextlib import suppress

import httpx

_TICK = 2.0
_SLOW = 5
_CHANGED, _SLOW_CHANGED = 1.0, 4.0
_TIMES = 10
"""The next request for a part begins so many times the time of the last one after it."""
_LONGEST = 30.0
_PAGES_OF_A_SESSION = 4
"""Those with a stream."""
_PATIENCE = httpx.Timeout(30, read=60)


class OpenPage:
    """The overview in one visible tab."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._changed = asyncio.Event()
        self.requests = 0
        self.signals = 0

    async def run(self) -> None:
        """Follow it until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._refresh("/live", _TICK, _CHANGED, {}))
            group.create_task(self._refresh("/", _TICK * _SLOW, _SLOW_CHANGED, {"hx-request": "true"}))

    async def _follow(self) -> None:
        while True:
            with suppress(httpx.HTTPError):
                async with self._client.stream("GET", "/changes?of=/") as answer:
                    answer.raise_for_status()
                    async for line in answer.aiter_lines():
                        if line == "event: changed":
                            self.signals += 1
                            self._changed.set()
                            self._changed = asyncio.Event()
            await asyncio.sleep(_TICK)

    async def _refresh(self, path: str, every: float, after_change: float, headers: dict[str, str]) -> None:
        while True:
            began = time.monotonic()
            answer = await self._client.get(path, headers=headers)
            answer.raise_for_status()
            self.requests += 1
            took = time.monotonic() - began
            least = max(after_change, min(took * _TIMES, _LONGEST))
            await asyncio.sleep(max(0.0, began + least - time.monotonic()))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, began + max(every, least) - time.monotonic())):
                    await self._changed.wait()


async def watch(console: str, number: int, seconds: float) -> tuple[int, int]:
    """Keep so many open for so long; return how many requests they made and signals they got."""
    if not number:
        await asyncio.sleep(seconds)
        return 0, 0
    clients = [
        httpx.AsyncClient(base_url=console, timeout=_PATIENCE) for _ in range(0, number, _PAGES_OF_A_SESSION)
    ]
    pages = [OpenPage(clients[place // _PAGES_OF_A_SESSION]) for place in range(number)]
    try:
        for client in clients:
            (await client.get("/")).raise_for_status()  # a stream is for a session
        running = [asyncio.create_task(page.run()) for page in pages]
        await asyncio.wait(running, timeout=seconds)
        for task in running:
            if task.done():
                task.result()
            task.cancel()
    finally:
        for client in clients:
            await client.aclose()
    return sum(page.requests for page in pages), sum(page.signals for page in pages)
