"""Several children under one roof: started in the order of what they need, stopped in the reverse one."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from duly_core.errors import DulyError
from duly_local.child import Child
from duly_local.child_spec import ChildSpec, SupervisionTiming
from duly_local.merged_output import MergedOutput


class Supervisor:
    """Keeps children running: `start`, then `run` until someone calls `request_stop`, then nothing is left.

    It runs on asyncio's own loop in the main thread: the kernel ties a child's life to the thread that
    started it.
    """

    def __init__(
        self, specs: Iterable[ChildSpec], output: MergedOutput, timing: SupervisionTiming | None = None
    ) -> None:
        timing = timing or SupervisionTiming()
        self._children = {spec.name: Child(spec, output, timing) for spec in specs}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stop_requested = asyncio.Event()

    def start(self) -> None:
        """Begin; each child starts once those that it depends on are ready."""
        for name, child in self._children.items():
            self._tasks[name] = asyncio.create_task(self._run_in_turn(child), name=name)

    async def run(self) -> None:
        """Return when all children are gone, after `request_stop`.

        Raises:
            ChildGaveUpError: one cannot work as it is set up; the others are stopped too.
        """
        asked = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait({asked, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        await self.stop()
        for task in self._tasks.values():
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise error

    async def wait_until_ready(self, within: timedelta | None = None) -> None:
        """Wait until all children are ready; None: for ever.

        Raises:
            ChildGaveUpError: one cannot work as it is set up.
            DulyError: it took too long; names those that are missing and the last that each said.
        """
        ready = asyncio.create_task(self._all_are_ready())
        waited_for = {ready, *self._tasks.values()}
        timeout = within.total_seconds() if within is not None else None
        done, _ = await asyncio.wait(waited_for, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        for task in done:
            task.result()
        if ready not in done:
            missing = [child for child in self._children.values() if not child.ready.is_set()]
            said = "".join(f"\n  {child.spec.name}: {child.last_line}" for child in missing)
            raise DulyError(f"not ready after {timeout:g} s; the last that each said:{said}")

    async def restart(self, name: str) -> None:
        """Stop one child gracefully, and start it again."""
        await self._children[name].restart()

    @property
    def is_stopping(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop_requested.is_set()

    def request_stop(self) -> None:
        """Have `run` stop everything and return; the second request kills at once."""
        if self._stop_requested.is_set():
            for child in self._children.values():
                child.kill()
        self._stop_requested.set()

    async def stop(self) -> None:
        """Stop all children, each after those that depend on it."""
        stopping: dict[str, asyncio.Task[None]] = {}

        async def stop_in_turn(name: str) -> None:
            await asyncio.gather(*(stopping[dependent] for dependent in self._dependents_of(name)))
            await self._children[name].stop()
            task = self._tasks.get(name)
            if task is not None:
                task.cancel()  # it may still wait for what it depends on; otherwise it is done
                await asyncio.wait({task})

        for name in self._children:
            stopping[name] = asyncio.create_task(stop_in_turn(name))
        await asyncio.gather(*stopping.values())

    def pids(self) -> dict[str, int]:
        """The processes that run now, by the name of the child."""
        return {name: child.pid for name, child in self._children.items() if child.pid is not None}

    async def _run_in_turn(self, child: Child) -> None:
        for name in child.spec.depends_on:
            await self._children[name].ready.wait()
        await child.keep_running()

    async def _all_are_ready(self) -> None:
        for child in self._children.values():
            await child.ready.wait()

    def _dependents_of(self, name: str) -> list[str]:
        return [child.spec.name for child in self._children.values() if name in child.spec.depends_on]
