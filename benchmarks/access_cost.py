"""`python -m benchmarks.access_cost`: what roles and TLS cost, in CPU a task, beside Duly without them, in turns."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import mean

import psycopg

from benchmarks.arguments import in_range, new_file, one_of, several
from benchmarks.duly_system import Duly, RunningDuly
from benchmarks.machine import machine
from benchmarks.results import Results
from benchmarks.rounds import Measurement, run_rounds
from benchmarks.suite import WORKLOADS
from duly_core.access.operator_without_server import make_operator
from duly_core.access.roles import Role
from duly_local.certificates import AUTHORITY, make_authority, make_certificate
from duly_local.stack import LocalStack

_PRINCIPAL = "bench"
_WORKLOADS = ("drain", "end_to_end_single", "one_call_running")


class Guarded(Duly):
    """Duly with roles, TLS, or both."""

    def __init__(self, name: str, *, roles: bool, tls: bool) -> None:
        super().__init__()
        self.name, self._roles, self._tls = name, roles, tls
        self.description = replace(self.description, title=name)

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[RunningDuly]:
        told = self._settings(folder)
        os.environ.update(told)
        try:
            async with super().running(folder) as running:
                yield running
        finally:
            for name in [*told, "DULY_RPC_TOKEN_FILE"]:
                os.environ.pop(name, None)

    def _settings(self, folder: Path) -> dict[str, str]:
        told = {"DULY_AUTH_MODE": "required"} if self._roles else {}
        if self._tls:
            certificates = folder / "certs"
            make_authority(certificates)
            make_certificate(certificates, "server", ["127.0.0.1", "localhost"], timedelta(days=1))
            told |= {
                "DULY_RPC_CA_FILE": str(certificates / f"{AUTHORITY}.pem"),
                "DULY_RPC_CERT_FILE": str(certificates / "server.pem"),
                "DULY_RPC_KEY_FILE": str(certificates / "server.key"),
            }
        return told

    def admit(self, stack: LocalStack, folder: Path) -> None:
        """Make a token whose bearer may do all that a worker and a client do."""
        if not self._roles:
            return
        token, _ = make_operator(stack.dsn, _PRINCIPAL)
        with psycopg.connect(stack.dsn) as connection:
            for role in (Role.HOST, Role.OWNER, Role.CLIENT):
                connection.execute(
                    "insert into role_grant (principal, role, pattern, granted_at, granted_by) "
                    "values (%s, %s, 'bench.*', duly_now(), 'bench')",
                    (_PRINCIPAL, str(role)),
                )
            connection.execute("update access_version set version = version + 1")
        file = folder / "bench.token"
        file.touch(0o600)
        file.write_text(token, encoding="utf-8")
        os.environ["DULY_RPC_TOKEN_FILE"] = str(file)


SYSTEMS = {
    "plain": Duly(),
    "roles": Guarded("roles", roles=True, tls=False),
    "tls": Guarded("tls", roles=False, tls=True),
    "both": Guarded("both", roles=True, tls=True),
}
SYSTEMS["plain"].name = "plain"


def costs(measured: list[Measurement]) -> list[str]:
    """Return how much more CPU a task each way takes than `plain`, for each workload.

    Machines that share their cores with others may take twice the CPU time for the same work. Postgres's work hardly
    depends on the way, so Duly's CPU time is counted in that of Postgres in the same measurement.
    """
    own, share = defaultdict(list), defaultdict(list)
    for each in measured:
        used = each.figures.cpu_us_per_task
        if not each.problem:
            rest = sum(used.values()) - used["postgres"]
            own[each.workload, each.system].append(rest / used["postgres"])
            share[each.workload].append(rest / sum(used.values()))
    return [
        f"{workload:20} {system:6} {(mean(of) / mean(plain) - 1) * mean(share[workload]):+.1%}, {len(of)} rounds; Duly's "
        f"CPU in Postgres's: {', '.join(f'{each:.2f}' for each in of)}; plain {', '.join(f'{each:.2f}' for each in plain)}"
        for (workload, system), of in sorted(own.items())
        if system != "plain" and (plain := own.get((workload, "plain")))
    ]


def main() -> None:
    """Measure, print, and keep the figures with `--json FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.access_cost", description=__doc__)
    parser.add_argument("--rounds", type=in_range(1, 100), default=3)
    parser.add_argument("--tasks", type=in_range(100, 1_000_000), default=20_000)
    parser.add_argument("--ways", type=several(one_of(tuple(SYSTEMS))), default=list(SYSTEMS))
    parser.add_argument("--workloads", type=several(one_of(tuple(WORKLOADS))), default=list(_WORKLOADS))
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    results, measured = Results(machine(), vars(options), options.json), []

    def tell(measurement: Measurement) -> None:
        results.add(measurement)
        measured.append(measurement)

    systems = [SYSTEMS[name] for name in options.ways]
    asyncio.run(run_rounds(systems, options.workloads, options.rounds, options.tasks, tell))
    print(*costs(measured), sep="\n")


if __name__ == "__main__":
    main()
