"""What the console costs: how long pages take with many lambdas and tasks, and what an idle one adds to a server.

python -m benchmarks.console [LAMBDAS] [TASKS]
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

import duly
from duly_wire.v1 import registry_pb2

_READY = re.compile(r"clients connect to (\S+)")
_CONSOLE = re.compile(r"console at (\S+)")
_PATIENCE = 180.0
_ROUNDS = 20
_IDLE_SECONDS = 30.0
_A_CALL = 1_000
_HZ = 100
_PAGES = (
    "/", "/live", "/tasks", "/tasks?status=new", "/tasks?lambda={name}", "/dead-letters", "/lambdas", "/lambdas?name=7",
    "/lambdas/{name}", "/queues", "/hosts", "/gates", "/time-tables", "/resources", "/settings", "/audit", "/tasks/{task}",
)  # fmt: skip


class Stack:
    """`duly up` as a process of its own, with its output in a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "up.log"
        command = [
            sys.executable,
            "-m",
            "duly_cli",
            "up",
            "--free-ports",
            "--data",
            str(folder / "data"),
            *arguments,
        ]
        self._process = subprocess.Popen(command, stdout=self._log.open("wb"), stderr=subprocess.STDOUT)

    def address(self) -> str:
        """Return where clients connect to, once it runs."""
        return self.said(_READY)

    def console(self) -> str:
        """Return the address of the console, once it runs."""
        return self.said(_CONSOLE)

    def said(self, pattern: re.Pattern[str]) -> str:
        """Return the first group of what it printed, once it did."""
        ends_at = time.monotonic() + _PATIENCE
        while time.monotonic() < ends_at:
            if found := pattern.search(self._log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.2)
        raise SystemExit(self._log.read_text(errors="replace"))

    def server(self) -> int:
        """Return the process of the server."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"server" in line and parent == self._process.pid:
                return int(folder.name)
        raise SystemExit("no server runs")

    def stop(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HZ


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def idle(*arguments: str, opened: bool = False) -> tuple[float, float]:
    """Return MiB and percent of a core of an idle server."""
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder), *arguments)
        try:
            stack.address()
            if opened:
                with httpx.Client(base_url=stack.console(), timeout=60) as client:
                    for path in ("/", "/tasks", "/live"):
                        client.get(path).raise_for_status()
            time.sleep(10)
            pid = stack.server()
            before = _cpu_seconds(pid)
            time.sleep(_IDLE_SECONDS)
            return _resident(pid), (_cpu_seconds(pid) - before) / _IDLE_SECONDS * 100
        finally:
            stack.stop()


def pages(lambdas: int, tasks: int) -> None:
    """Print how long each page takes."""
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder))
        try:
            address, url = stack.address(), stack.console()
            names = [f"team-{number % 50}/job.{number:05}" for number in range(lambdas)]
            import grpc

            from duly_wire.v1.registry_pb2_grpc import RegistryServiceStub

            with grpc.insecure_channel(address) as channel:
                for start in range(0, lambdas, _A_CALL):
                    declared = [registry_pb2.Lambda(name=name) for name in names[start : start + _A_CALL]]
                    RegistryServiceStub(channel).RegisterLambdas(
                        registry_pb2.RegisterLambdasRequest(lambdas=declared), timeout=120
                    )
            with duly.Client(address) as client:
                for start in range(0, tasks, _A_CALL):
                    some = [
                        duly.NewTask(
                            names[(start + n) * 7919 % lambdas], n, priority=duly.Priority(1 + n % 4)
                        )
                        for n in range(_A_CALL)
                    ]
                    task = client.schedule_many(some)[-1]
            server = stack.server()
            with httpx.Client(base_url=url, timeout=60) as browser:
                for path in _PAGES:
                    address_of_page = path.format(name=names[7], task=task)
                    taken, cpu = [], _cpu_seconds(server)
                    for _ in range(_ROUNDS):
                        started = time.perf_counter()
                        answer = browser.get(address_of_page)
                        taken.append((time.perf_counter() - started) * 1000)
                    cpu = (_cpu_seconds(server) - cpu) / _ROUNDS * 1000
                    print(
                        f"{path:24} {answer.status_code} {len(answer.content) / 1024:7.1f} KiB  "
                        f"median {statistics.median(taken):7.1f} ms  worst {max(taken):7.1f} ms  server CPU {cpu:5.1f} ms"
                    )
        finally:
            stack.stop()


def main() -> None:
    """Measure both."""
    lambdas, tasks = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (10_000, 100_000)
    without, with_console, seen = idle("--no-console"), idle(), idle(opened=True)
    for name, (memory, cpu) in {"without": without, "with": with_console, "after pages": seen}.items():
        print(f"idle {name:12} {memory:7.1f} MiB  {cpu:5.2f} % of a core")
    pages(lambdas, tasks)


if __name__ == "__main__":
    main()
