"""CPU seconds of the stack's processes, by what each is: read from /proc before and after a workload."""

import os
from collections import Counter
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_NAMES = (
    ("duly_executor.callback", "callbacks"),
    ("duly_executor", "executor"),
    ("worker", "controller"),
    ("frontend", "frontend"),
    ("store-consumer", "store consumer"),
    ("hsc", "hsc"),
    ("postgres", "postgres"),
)


def seconds_by_process(root: int) -> Counter[str]:
    """CPU seconds so far of all descendants of `root`, and of `root` itself (the client)."""
    parents = {}
    used = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = (command, (int(fields[11]) + int(fields[12])) / _TICKS)
    total: Counter[str] = Counter()
    for pid, (command, seconds) in used.items():
        if pid == root:
            total["client"] += seconds
        elif _descends(pid, root, parents):
            total[_name(command)] += seconds
    return total


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == root:
            return True
    return False


def _name(command: str) -> str:
    return next((name for part, name in _NAMES if part in command), "other")
