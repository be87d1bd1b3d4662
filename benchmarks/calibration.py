"""How fast the machine is at this moment: stored beside every measurement, so that its drift can be seen."""

import os
import tempfile
import time
from pathlib import Path

_ROUNDS = 2_000_000
_SYNCS = 200


def calibrate(folder: Path) -> dict[str, float]:
    """A fixed loop of Python (CPU and wall seconds), and how many small synced writes a second the disk takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    total = 0
    for number in range(_ROUNDS):
        total += number & 7
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    with tempfile.TemporaryFile(dir=folder) as file:
        started = time.perf_counter()
        for _ in range(_SYNCS):
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
        syncs = _SYNCS / (time.perf_counter() - started)
    return {"loop_cpu_s": cpu, "loop_wall_s": wall, "fdatasync_per_s": syncs, "load": os.getloadavg()[0]}
