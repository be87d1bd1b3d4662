# ruff: noqa: T201 (a report goes to the terminal)
"""`python -m tests.fuzz --seconds N --seed S`: fuzz for a while, print what each target was given and answered."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql

from duly_core.postgres.schema.migrate import migrate
from duly_local.postgres.embedded import EmbeddedPostgres
from tests.fixtures.roles import prepare
from tests.fuzz.campaign import Tally, fuzz, rss_megabytes
from tests.fuzz.cells import OF_BOTH, install_cells
from tests.fuzz.hostile_cells import hostile
from tests.fuzz.installation import install

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def _show(tallies: dict[str, Tally]) -> None:
    print(f"{'target':34} {'executions':>10} {'slowest':>8}  answers")
    for name, tally in tallies.items():
        answers = ", ".join(f"{answer} {count:,}" for answer, count in tally.answers.most_common())
        print(f"{name:34} {tally.executions:10,} {tally.slowest_s:6.2f} s  {answers}")
    total = sum(tally.executions for tally in tallies.values())
    print(f"{'all':34} {total:10,}; memory at the end {rss_megabytes():.0f} MB")


async def _run(dsns: Mapping[str, str], arguments: argparse.Namespace) -> None:
    grants = OF_BOTH if arguments.roles else []
    async with install_cells(dsns, grants) if len(dsns) > 1 else install(dsns[""]) as installation:
        tallies = await fuzz(
            installation,
            arguments.seconds,
            arguments.seed,
            patience=arguments.patience,
            growth_mb=arguments.growth,
            often={} if installation.is_sole else hostile(installation),
        )
    _show(tallies)


def _database(postgres: EmbeddedPostgres, name: str) -> str:
    """Make a database with the schema, to which the services connect as users with the rights of their roles."""
    with psycopg.connect(postgres.dsn_of("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = postgres.dsn_of(name)
    migrate(dsn)
    prepare(dsn)
    return dsn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--patience", type=float, default=1, help="how many times longer than 1 s is a hang")
    parser.add_argument("--growth", type=float, default=100, help="MB of memory that may be taken for good")
    parser.add_argument("--cells", action="store_true", help="an installation of two cells")
    parser.add_argument(
        "--roles", action="store_true", help="with --cells: callers have no role for some of its tasks"
    )
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    os.environ.setdefault("DULY_TELEMETRY_LOG_LEVEL", "error")
    with tempfile.TemporaryDirectory(prefix="duly-fuzz-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "data", settings=_FAST) as postgres:
            dsns = {
                cell: _database(postgres, f"duly_{cell}")
                for cell in (("a", "b") if arguments.cells else ("",))
            }
            asyncio.run(_run(dsns, arguments))


if __name__ == "__main__":
    main()
