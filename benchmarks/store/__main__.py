"""`python -m benchmarks.store`: pages that each step of a task touches as the store grows, and polls under a snapshot."""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.store import growth, snapshot
from benchmarks.store.fill import LAMBDA, fill
from duly_core.store.migrate import migrate
from duly_local.postgres import EmbeddedPostgres

LEAST = 10_000


def in_a_database(admin_dsn: str, measure: Any) -> Any:
    """Call with the DSN of a migrated database that is gone afterwards: the disk holds one at a time."""
    name = sql.Identifier(f"duly_bench_{uuid4().hex[:8]}")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(name))
        try:
            dsn = make_conninfo(admin_dsn, dbname=name.as_string().strip('"'))
            migrate(dsn)
            return measure(dsn)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(name))


def measure(admin_dsn: str, options: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for."""
    measured: dict[str, Any] = {}
    for kind in ("waiting", "finished"):
        for size in options.sizes:
            waiting, finished = (size, LEAST) if kind == "waiting" else (LEAST, size)

            def steps(dsn: str, waiting: int = waiting, finished: int = finished) -> dict[str, Any]:
                touched = growth.measure(dsn, fill(dsn, waiting, finished))
                return {name: asdict(each) for name, each in touched.items()}

            measured[f"{size} {kind}"] = in_a_database(admin_dsn, steps)
            print(f"  {size} {kind}: done", flush=True)

    def snapshots(dsn: str) -> dict[str, Any]:
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(LAMBDA_ONLY, [LAMBDA])
        return snapshot.measure(dsn, options.through, 4)

    measured["under a snapshot"] = in_a_database(admin_dsn, snapshots)
    return measured


LAMBDA_ONLY = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,
    backoff_max, payload_limit, registered_at, updated_at)
values (%s, '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now())
"""


def show(measured: dict[str, Any]) -> None:
    """Tables for people."""
    print(f"\nPages a task (execution, ms a group of {growth.GROUP})")
    for case, steps in measured.items():
        if case != "under a snapshot":
            cells = (
                f"{name} {each['pages'] / growth.GROUP:6.2f} ({each['execution_ms']:7.2f})"
                for name, each in steps.items()
            )
            print(f"  {case:18} {'   '.join(cells)}")
    print("\nPages of a poll that finds nothing, by how many tasks went through under a held snapshot")
    for case, polls in measured["under a snapshot"].items():
        print(f"  {case:18} {'   '.join(f'{name} {pages:6}' for name, pages in polls.items())}")


def main() -> None:
    """Measure, print, and keep all of it with `--json FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[10_000, 100_000, 1_000_000],
    )
    parser.add_argument(
        "--through", type=int, default=40_000, help="tasks that go through under the snapshot"
    )
    parser.add_argument(
        "--dsn", help="a server to use, whose user may create databases; default: one of its own"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.dsn:
        measured = measure(options.dsn, options)
    else:
        with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o711)
            # what is measured is pages touched: fsync only takes time
            with EmbeddedPostgres(
                Path(folder) / "data", settings={"fsync": "off", "autovacuum": "off"}
            ) as postgres:
                measured = measure(postgres.dsn_of("postgres"), options)
    show(measured)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
