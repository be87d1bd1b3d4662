"""How what goes on beside a run is ended: a loop that died before proves nothing, and that must not go unnoticed."""

import asyncio


async def end_loop(loop: "asyncio.Task[None]") -> list[str]:
    """Cancel it; return what it died of, if it had died by itself."""
    loop.cancel()
    (ended,) = await asyncio.gather(loop, return_exceptions=True)
    if ended is None or isinstance(ended, asyncio.CancelledError):
        return []
    return [f"a part of the run itself died: {type(ended).__name__}: {ended}"]
