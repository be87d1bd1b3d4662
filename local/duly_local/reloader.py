"""Restarts a worker when the files of its application change, unless they cannot be imported."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from duly_core.process.parent import PARENT_PID

Stamp = tuple[int, int] | None
"""When a file was changed, and its size; None: there is no such file."""

_LOOK_EVERY = timedelta(milliseconds=300)
_IMPORT_WITHIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Probed:
    """What importing an application showed."""

    files: frozenset[str]
    error: str


def stamps(files: Iterable[str]) -> dict[str, Stamp]:
    """Return the stamp of each file or folder."""
    found: dict[str, Stamp] = {}
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116 (a hundred of them, three times a second)
        except OSError:
            found[file] = None
        else:
            found[file] = status.st_mtime_ns, status.st_size
    return found


async def probe(application: str, environment: Mapping[str, str]) -> Probed:
    """Import an application in another process."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "duly_local.application_probe",
            application,
            env={**os.environ, **environment, PARENT_PID: str(os.getpid())},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return Probed(frozenset(), f"Python cannot be started: {error}")
    try:
        async with asyncio.timeout(_IMPORT_WITHIN.total_seconds()):
            output, _ = await process.communicate()
        told = json.loads(output.decode().strip().rpartition("\n")[2])
    except TimeoutError:
        return Probed(frozenset(), f"it was not imported within {_IMPORT_WITHIN.total_seconds():g} s")
    except ValueError:
        return Probed(frozenset(), f"importing it ended Python with exit code {process.returncode}")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Probed(frozenset(told["files"]), told["error"])


@dataclass
class Reloader:
    """Looks after one worker."""

    application: str
    restart: Callable[[], Awaitable[None]]
    say: Callable[[str], None]
    probe: Callable[[], Awaitable[Probed]]
    look_every: timedelta = _LOOK_EVERY
    made_at_ns: int = field(default_factory=time.time_ns)
    """When the worker may first have imported the application: what changed since may be newer than its code."""
    _known: dict[str, Stamp] = field(default_factory=dict)

    async def run(self) -> None:
        """Restart the worker after each change, until cancelled."""
        first = await self.probe()
        self._watch(first.files, {}, folders=bool(first.error))
        for file, stamp in self._known.items():
            if stamp is not None and stamp[0] > self.made_at_ns and not Path(file).is_dir():
                self._known[file] = None
        while True:
            changed = await self._change()
            before = stamps(self._known)
            probed = await self.probe()
            names = ", ".join(sorted(Path(file).name for file in changed))
            if probed.error:
                self.say(f"{names} changed, and the old code keeps running: {probed.error}")
                self._watch(probed.files | self._known.keys(), before, folders=True)
            else:
                self._watch(probed.files, before, folders=False)
                self.say(f"{names} changed: restarting the worker with the new code")
                await self.restart()

    def _watch(self, files: Iterable[str], before: Mapping[str, Stamp], *, folders: bool) -> None:
        """Compare with how these files were before the application was imported.

        Folders are watched while the import fails: the file that is missing has no stamp.
        """
        watched = {*files}
        if folders:
            watched |= {str(Path(file).parent) for file in watched} | {str(Path.cwd())}
        self._known = {file: before.get(file, stamp) for file, stamp in stamps(watched).items()}

    async def _change(self) -> set[str]:
        """Wait for a change, and then until nothing changes any more; return what did."""
        now = self._known
        while True:
            await asyncio.sleep(self.look_every.total_seconds())
            last, now = now, stamps(self._known)
            if now != self._known and now == last:
                return {file for file, stamp in now.items() if stamp != self._known[file]}
