"""What the measurements ran on, for those who read the figures."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.system import ROOT
from duly_local.postgres.binaries import find_binaries

_PACKAGES = ("grpcio", "protobuf", "psycopg", "uvloop")


def machine() -> dict[str, str]:
    """Name and value of each fact."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "postgres": _said(find_binaries().program("postgres"), "--version"),
        "redis": _said("redis-server", "--version").partition(" sha=")[0],
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "commit": _said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return "none"
