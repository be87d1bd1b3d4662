"""Memory, open files and threads of each process of the stack, under names that last."""

import os
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.cpu import processes

_KIB = 1024
_TOGETHER = ("postgres",)
"""Kinds whose processes come and go, and are counted together."""
_LEFT_OUT = ("client", "other")


class ProcessWatch:
    """Names each process by its kind and a number: `executor 2`."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._names: dict[int, str] = {}
        self._numbers: Counter[str] = Counter()
        self.started_again: list[str] = []
        """Processes that ended, and those that took their place."""

    def sample(self) -> dict[str, float]:
        """Read all of them: values by the name of the series."""
        found: dict[str, float] = {}
        together: defaultdict[str, float] = defaultdict(float)
        total = 0.0
        there = {pid: "supervisor" if pid == self._root else kind for pid, kind in processes(self._root)}
        names = self._name({pid: kind for pid, kind in there.items() if kind not in (*_LEFT_OUT, *_TOGETHER)})
        for pid, kind in there.items():
            if kind in _LEFT_OUT:
                continue
            memory = _memory(pid)
            if memory is None:
                continue
            total += memory["Pss"]
            if kind in _TOGETHER:
                together[f"processes: {kind}"] += 1
                together[f"memory: {kind} (PSS)"] += memory["Pss"]
                together[f"memory: {kind} (private)"] += memory["Private"]
                together[f"files: {kind}"] += _files(pid)
            else:
                found[f"memory: {names[pid]}"] = memory["Private"]
                found[f"files: {names[pid]}"] = _files(pid)
                found[f"threads: {names[pid]}"] = _threads(pid)
        return {**found, **together, "memory: all (PSS)": total}

    def _name(self, kinds: dict[int, str]) -> dict[int, str]:
        gone = {name for pid, name in self._names.items() if pid not in kinds}
        self._names = {pid: name for pid, name in self._names.items() if pid in kinds}
        for pid in sorted(kinds.keys() - self._names.keys()):
            kind = kinds[pid]
            freed = sorted(name for name in gone if name.rpartition(" ")[0] == kind)
            if freed:
                name = freed[0]
                gone.remove(name)
                self.started_again.append(name)
            else:
                self._numbers[kind] += 1
                name = f"{kind} {self._numbers[kind]}"
            self._names[pid] = name
        self.started_again += sorted(f"{name} (gone)" for name in gone)
        return self._names


def _memory(pid: int) -> dict[str, float] | None:
    """MiB of proportional and of private memory; None: the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {line.partition(":")[0]: int(line.split()[1]) / _KIB for line in lines if line.endswith(" kB")}
    if "Pss" not in sizes:
        return None
    return {"Pss": sizes["Pss"], "Private": sizes["Private_Clean"] + sizes["Private_Dirty"]}


def _files(pid: int) -> float:
    try:
        return float(len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208 (names only)
    except OSError:
        return 0.0


def _threads(pid: int) -> float:
    try:
        return float(len(os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208 (names only)
    except OSError:
        return 0.0
