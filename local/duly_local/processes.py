"""Ending processes: one program of ours, or a whole process group."""

import asyncio
import os
import subprocess
import time
from datetime import timedelta
from signal import SIGKILL, Signals

_LOOK_AGAIN_AFTER = timedelta(milliseconds=20)


def end_program(process: subprocess.Popen[bytes], polite: tuple[Signals, ...], patience: timedelta) -> None:
    """Send the signals one after the other, each with that much time to obey, then SIGKILL; reap."""
    for number in (*polite, SIGKILL):
        process.send_signal(number)
        try:
            process.wait(None if number == SIGKILL else patience.total_seconds())
        except subprocess.TimeoutExpired:
            continue
        return


def signal_group(group: int, number: int) -> bool:
    """Signal a process group (0: only look); False: nobody is in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody is, under another user
        pass
    return True


async def clear_group(group: int, patience: timedelta) -> None:
    """Wait for what a leader left behind in its group to go by itself, then kill it."""
    deadline = time.monotonic() + patience.total_seconds()
    while signal_group(group, 0):
        if time.monotonic() > deadline:
            signal_group(group, SIGKILL)
            return
        await asyncio.sleep(_LOOK_AGAIN_AFTER.total_seconds())


def how_it_ended(code: int) -> str:
    """An exit code in words; negative ones are signals."""
    return f"killed by {Signals(-code).name}" if code < 0 else f"exited with code {code}"
