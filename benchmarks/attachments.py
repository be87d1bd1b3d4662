"""`python -m benchmarks.attachments`: a large file, uploaded and fetched through `duly up`, against bare copies of it.

In turns, in each round: a copy of the file (read and write in blocks of 4 MiB, without fsync), a durable copy (each block is
written through, as a part of an attachment is before it is acknowledged), a copy that hashes each block, an upload with a task that
is scheduled, a fetch, and an upload of what is stored already. Each round has other content.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duly
from benchmarks.arguments import folder, in_range, new_file
from benchmarks.cpu import seconds_by_process
from benchmarks.duly_system import Duly, Shape
from benchmarks.machine import machine
from benchmarks.tables import rows
from duly_wire.attachment_rules import PART_BYTES

_LAMBDA = "bench.noop"
_MIB = 1024 * 1024
_KINDS = ("copy", "durable copy", "copy and hash", "upload", "fetch", "upload again")


def _copy(
    source: Path,
    target: Path,
    block_hash: Callable[[bytes], object] = lambda _: None,
    *,
    durable: bool = False,
) -> None:
    with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        while block := reading.read(PART_BYTES):
            block_hash(block)
            writing.write(block)
            if durable:
                os.fdatasync(writing.fileno())


def _renew(path: Path, size: int) -> None:
    """Make the content new in each part, so that nothing of it is stored."""
    if not path.exists():
        with path.open("wb") as file:
            for _ in range(0, size, PART_BYTES):
                file.write(os.urandom(PART_BYTES))
    with path.open("r+b") as file:
        for start in range(0, size, PART_BYTES):
            file.seek(start)
            file.write(os.urandom(32))
    os.sync()


class Cost(NamedTuple):
    """Of one stretch of work."""

    seconds: float
    own_cpu_s: float
    """Of the client, or of the copy."""
    stack_cpu_s: float


def _timed(work: Callable[[], object]) -> Cost:
    before, began = seconds_by_process(os.getpid()), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    used = seconds_by_process(os.getpid())
    used.subtract(before)
    own = used.pop("bench", 0)
    return Cost(seconds, own, sum(used.values()))


def _round(client: duly.Client, where: Path, size: int) -> dict[str, Cost]:
    """Return what each costs."""
    path, copy, fetched = where / "file", where / "copy", where / "fetched"
    _renew(path, size)
    tasks: list[duly.ScheduledTask] = []

    def schedule() -> None:
        tasks.append(client.schedule(_LAMBDA, {"file": duly.Attachment(path)}))

    def fetch() -> None:
        client.fetch(use.attachment, fetched)

    found = {"copy": _timed(lambda: _copy(path, copy))}
    copy.unlink()
    os.sync()  # what the copy left to write is not to delay the next one
    found["durable copy"] = _timed(lambda: _copy(path, copy, durable=True))
    copy.unlink()
    found["copy and hash"] = _timed(lambda: _copy(path, copy, lambda block: hashlib.sha256(block).digest()))
    found["upload"] = _timed(schedule)
    (use,) = client.attachments(tasks[0])
    found["fetch"] = _timed(fetch)
    found["upload again"] = _timed(schedule)
    assert _same(path, fetched)
    copy.unlink()
    fetched.unlink()
    return found


def _same(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        return hashlib.file_digest(first, "sha256").digest() == hashlib.file_digest(second, "sha256").digest()


async def measure(options: argparse.Namespace) -> dict[str, list[Cost]]:
    """Run the rounds in one stack; what each kind costs."""
    size = options.mib * _MIB
    found: dict[str, list[Cost]] = {kind: [] for kind in _KINDS}
    with tempfile.TemporaryDirectory(
        prefix="duly-bench-", dir=options.folder, ignore_cleanup_errors=True
    ) as path:
        where = Path(path)
        where.chmod(0o711)
        async with Duly(Shape()).running(where) as running:
            await running.start_workers()
            with duly.Client(running.stack.frontend_address) as client:
                for number in range(1, options.rounds + 1):
                    costs = await asyncio.to_thread(_round, client, where, size)
                    for kind, cost in costs.items():
                        found[kind].append(cost)
                    told = ", ".join(f"{kind} {cost.seconds:.2f} s" for kind, cost in costs.items())
                    print(f"  round {number}: {told}", flush=True)
    return found


def show(found: dict[str, list[Cost]], mib: int) -> str:
    """Return the medians as a table for people."""
    copies = found["copy"]
    body = []
    for kind, costs in found.items():
        seconds = statistics.median(each.seconds for each in costs)
        ratio = statistics.median(
            copy.seconds / each.seconds for copy, each in zip(copies, costs, strict=True)
        )
        durable = statistics.median(
            copy.seconds / each.seconds for copy, each in zip(found["durable copy"], costs, strict=True)
        )
        own = statistics.median(each.own_cpu_s for each in costs)
        stack = statistics.median(each.stack_cpu_s for each in costs)
        body.append(
            [
                kind,
                f"{seconds:.2f}",
                f"{mib / seconds:,.0f}",
                f"{ratio:.2f}",
                f"{durable:.2f}",
                f"{own:.2f}",
                f"{stack:.2f}",
            ]
        )
    head = ["", "seconds", "MiB/s", "x copy", "x durable copy", "own CPU s", "stack CPU s"]
    return f"{mib:,} MiB; medians of {len(copies)} rounds.\n{rows(head, body)}"


def main() -> None:
    """Measure, print, and keep every round with `--json FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attachments", description=__doc__)
    parser.add_argument("--mib", type=in_range(1, 10_000), default=1024, help="of the file (default: 1024)")
    parser.add_argument("--rounds", type=in_range(1, 100), default=3)
    parser.add_argument(
        "--folder", type=folder, help="where files and stack are (default: the temporary folder)"
    )
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    print(show(found, options.mib))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
