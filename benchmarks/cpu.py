"""CPU seconds and memory of a measured system's processes, by what each is: read from /proc."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_NAMES = (
    ("benchmarks.driver", "client"),
    ("benchmarks.hops client", "client"),
    ("benchmarks.hops", "server"),
    ("postgres", "postgres"),
    ("redis-server", "redis"),
    ("duly_executor.callback", "callbacks"),
    ("duly_executor", "executor"),
    ("duly_cli worker", "controller"),
    ("duly_cli server", "server"),
    ("duly_cli frontend", "frontend"),
    ("duly_cli store-consumer", "store consumer"),
    ("duly_cli hsc", "hsc"),
    ("duly_cli console", "console"),
    ("benchmarks.scale.hosts", "hosts"),
    ("moto", "moto"),
    ("benchmarks.rivals", "workers"),
    ("benchmarks.http_receiver", "receiver"),
)


def seconds_by_process(root: int) -> Counter[str]:
    """CPU seconds so far of all descendants of `root`, and of `root` itself (the bench).

    What children used that have ended is their parent's, so that nothing is lost between two readings.
    """
    total: Counter[str] = Counter()
    for pid, name in processes(root):
        fields = _stat(pid)
        if fields:
            own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            # children of ours that have ended are earlier measurements'
            total[name] += (own if pid == root else own + ended) / _TICKS
    return total


def scheduled_seconds_by_process(root: int) -> Counter[str]:
    """As above but to the nanosecond, for work that takes few of the other's ticks; what has ended is left out."""
    total: Counter[str] = Counter()
    for pid, name in processes(root):
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                nanoseconds = int(thread.read_text(encoding="ascii").split()[0])
            except OSError:
                continue
            total[name] += nanoseconds * 1e-9  # type: ignore[assignment]
    return total


def ended_seconds_by_process(root: int) -> Counter[str]:
    """CPU seconds of children that have ended, such as workers of autovacuum, by the parent's kind; not of `root`."""
    total: Counter[str] = Counter()
    for pid, name in processes(root):
        fields = _stat(pid)
        if fields and pid != root:
            total[name] += (int(fields[13]) + int(fields[14])) / _TICKS  # type: ignore[assignment]
    return total


def memory_by_process(root: int) -> Counter[str]:
    """MiB by process: each page counted once, shared ones in equal parts (PSS)."""
    total: Counter[str] = Counter()
    for pid, name in processes(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        total[name] += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def count_by_process(root: int) -> Counter[str]:
    """How many processes of each kind there are."""
    return Counter(name for _, name in processes(root))


def processes(root: int) -> Iterator[tuple[int, str]]:
    """Yield the pid and the kind of `root` ("bench") and of all its descendants."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            fields = _stat(int(folder.name))
            if fields:
                parents[int(folder.name)] = int(fields[1])
    for pid in parents:
        if pid == root:
            yield pid, "bench"
        elif _descends(pid, root, parents):
            yield pid, _name(pid)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == root:
            return True
    return False


def _name(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "other"
    return next((name for part, name in _NAMES if part in command), "other")
