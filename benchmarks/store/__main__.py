"""`python -m benchmarks.store`: what statements cost as the store grows, and polls under a snapshot.

Pages that are touched, which do not depend on how busy the machine is, and CPU of the server's process, for which stores of
all sizes take turns (A B C, A B C, ...), so that a machine that drifts hits all alike.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.arguments import in_range, new_file, several
from benchmarks.calibration import calibrate
from benchmarks.machine import machine
from benchmarks.store import growth, snapshot
from benchmarks.store.cases import GROUP, POLL, STEPS, WITH_A_QUEUE
from benchmarks.store.fill import IN_A_GRAPH, IN_A_SESSION, LAMBDA, Spread, fill
from benchmarks.tables import rows
from duly_core.postgres.schema.migrate import migrate
from duly_local.postgres.binaries import ENVIRONMENT_VARIABLE
from duly_local.postgres.embedded import EmbeddedPostgres

LEAST = 10_000
KINDS = ("waiting", "finished")
_SNAPSHOT_STEPS = 4
_MOST = 20_000_000


@contextmanager
def database(admin_dsn: str) -> Iterator[str]:
    """The DSN of a migrated database that is gone afterwards."""
    name = sql.Identifier(f"duly_bench_{uuid4().hex[:8]}")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(name))
        try:
            dsn = make_conninfo(admin_dsn, dbname=name.as_string().strip('"'))
            migrate(dsn)
            yield dsn
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(name))


def measure(admin_dsn: str, options: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for."""
    measured: dict[str, Any] = {"machine": machine(), "cost": {}}
    for kind in KINDS:
        measured["cost"][kind] = sizes(admin_dsn, kind, options.sizes, options.rounds, _spread(options))
        if options.json:
            options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    with database(admin_dsn) as dsn:
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(LAMBDA_ONLY, [LAMBDA])
        measured["under a snapshot"] = snapshot.measure(dsn, options.through, _SNAPSHOT_STEPS)
    return measured


def _spread(options: argparse.Namespace) -> Spread:
    return Spread(options.lambdas, options.sessions, options.graphs)


def sizes(admin_dsn: str, kind: str, wanted: list[int], rounds: int, spread: Spread) -> list[dict[str, Any]]:
    """Stores of these sizes beside each other, in turns."""
    found = []
    with ExitStack() as stack:
        stores = []
        for size in wanted:
            dsn = stack.enter_context(database(admin_dsn))
            waiting, finished = (size, LEAST) if kind == "waiting" else (LEAST, size)
            stores.append((size, dsn, fill(dsn, waiting, finished, spread.fitting(waiting, max(wanted)))))
            print(f"  {size:,} {kind}: filled", flush=True)
        speed = calibrate(Path(tempfile.gettempdir()))
        costs = growth.measure([(dsn, filled) for _, dsn, filled in stores], rounds)
        for (size, _, _), of_store in zip(stores, costs, strict=True):
            for number, of_round in enumerate(of_store, start=1):
                steps = {name: asdict(cost) for name, cost in of_round.items()}
                found.append({"size": size, "round": number, "steps": steps, "calibration": speed})
    return found


LAMBDA_ONLY = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,
    backoff_max, payload_limit, registered_at, updated_at)
values (%s, '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now())
"""


def show(measured: dict[str, Any]) -> str:
    """Tables for people."""
    parts = []
    for kind, found in measured["cost"].items():
        names = (*STEPS, *WITH_A_QUEUE, POLL)
        head = [f"{kind} tasks", *names, "a task", "against the least"]
        parts += [
            f"Pages that a task touches ({POLL}: a poll):",
            rows(head, _cost_rows(found, "pages", 2)),
            f"CPU of the server's process, us a task ({POLL}: a poll; the ratio: within each round):",
            rows(head, _cost_rows(found, "cpu_ms", 1)),
            "Pages, then CPU in us of the server's process: of a task, or of one execution where the name has no task; and the largest store's by the smallest's:",
            rows([f"{kind} tasks", *_more_head(found)], _more_rows(found)),
        ]
    polls = measured["under a snapshot"]
    head = ["tasks", *next(iter(polls.values()))]
    body = ([case, *(f"{pages:,}" for pages in poll.values())] for case, poll in polls.items())
    parts += ["Pages of a poll that finds nothing, by how many tasks went through under a held snapshot:"]
    parts += [rows(head, body)]
    return "\n\n".join(parts)


def _cost_rows(found: list[dict[str, Any]], figure: str, digits: int) -> Iterator[list[str]]:
    least = {each["round"]: _of_a_task(each, figure) for each in found if each["size"] == _least(found)}
    for size in sorted({each["size"] for each in found}):
        runs = [each for each in found if each["size"] == size]
        if any(each["steps"][name][figure] is None for each in runs for name in STEPS):
            yield [f"{size:,}", "not measured: the server is on another machine"]
            continue
        names = (*STEPS, *WITH_A_QUEUE)
        of_steps = (statistics.median(_one(each, name, figure) for each in runs) for name in names)
        cells = [f"{value:,.{digits}f}" for value in of_steps]
        poll = [each["steps"][POLL][figure] * (1000 if figure == "cpu_ms" else 1) for each in runs]
        cells.append(f"{statistics.median(poll):,.{0 if figure == 'pages' else 1}f}")
        cells.append(f"{statistics.median(_of_a_task(each, figure) for each in runs):,.{digits}f}")
        ratio = statistics.median(_of_a_task(each, figure) / least[each["round"]] for each in runs)
        yield [f"{size:,}", *cells, f"{ratio:.2f} x"]


def _more_head(found: list[dict[str, Any]]) -> list[str]:
    each = [f"{size:,}" for size in sorted({run["size"] for run in found})]
    return [f"{title}{name}" for title in ("pages ", "us ") for name in (*each, "ratio")]


def _more_rows(found: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Of each case the medians over the rounds; the ratio is the median of those within each round."""
    by_size: dict[int, list[dict[str, Any]]] = {}
    for run in sorted(found, key=lambda run: (run["size"], run["round"])):
        by_size.setdefault(run["size"], []).append(run["steps"])
    for name, first in next(iter(by_size.values()))[0].items():
        cells = [name if first["of"] == 1 else f"{name}, a task"]
        for figure, digits in (("pages", 2), ("cpu_ms", 1)):
            if any(steps[name][figure] is None for runs in by_size.values() for steps in runs):
                cells += ["not measured"] * (len(by_size) + 1)
                continue
            unit = (1000 if figure == "cpu_ms" else 1) / first["of"]
            of_sizes = [[steps[name][figure] * unit for steps in runs] for runs in by_size.values()]
            cells += [f"{statistics.median(each):,.{digits}f}" for each in of_sizes]
            ratios = [large / small for small, large in zip(of_sizes[0], of_sizes[-1], strict=True)]
            cells.append(f"{statistics.median(ratios):.2f} x")
        yield cells


def _least(found: list[dict[str, Any]]) -> int:
    return min(int(each["size"]) for each in found)


def _one(each: dict[str, Any], step: str, figure: str) -> float:
    """Of one task, in one step."""
    value: float = each["steps"][step][figure]
    return value / GROUP * (1000 if figure == "cpu_ms" else 1)


def _of_a_task(each: dict[str, Any], figure: str) -> float:
    """Of one task, on its whole way where there is no queue."""
    return sum(_one(each, name, figure) for name in STEPS)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=several(in_range(1, _MOST)),
        default=[10_000, 1_000_000],
        help="waiting, then finished tasks, with commas between (default: 10000,1000000)",
    )
    parser.add_argument(
        "--lambdas",
        type=in_range(1, 100_000),
        default=1,
        help="over which the tasks are spread (default: 1; from 2000 on also sets of 1,000 lambdas are measured)",
    )
    for name, tasks in (("sessions", IN_A_SESSION), ("graphs", IN_A_GRAPH)):
        parser.add_argument(
            f"--{name}",
            type=in_range(0, _MOST // tasks),
            default=0,
            help=f"of {tasks} tasks each, among the waiting tasks of the largest store, and as large a part of those of the others (default: 0)",
        )
    parser.add_argument("--rounds", type=in_range(1, 100), default=3, help="over all sizes (default: 3)")
    parser.add_argument(
        "--through",
        type=in_range(_SNAPSHOT_STEPS * snapshot.GROUP, 1_000_000),
        default=40_000,
        help="tasks that go through under the snapshot (default: 40000)",
    )
    parser.add_argument(
        "--shared-buffers",
        default="1GB",
        help="of the server of its own, as Postgres writes it (default: 1GB)",
    )
    parser.add_argument(
        "--dsn", help="a server to use, whose user may create databases; default: one of its own"
    )
    parser.add_argument(
        "--postgres",
        type=Path,
        metavar="FOLDER",
        help="holds the initdb and postgres of the server of its own; default: the first found",
    )
    parser.add_argument("--json", type=new_file, help="keep all of it in this file; it is replaced")
    options = parser.parse_args()
    if _spread(options).tasks > max(*options.sizes, LEAST):
        parser.error("--sessions and --graphs have more tasks than the largest of --sizes")
    return options


def main() -> None:
    """Measure, print, and keep all of it with `--json FILE`."""
    options = parse()
    if options.postgres:
        os.environ[ENVIRONMENT_VARIABLE] = str(options.postgres.absolute())
    if options.dsn:
        measured = measure(options.dsn, options)
    else:
        with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o711)
            # nothing here is about the disk: fsync only takes time
            settings = {
                "fsync": "off",
                "full_page_writes": "off",
                "autovacuum": "off",
                "checkpoint_timeout": "1h",
                "max_wal_size": "4GB",
                "shared_buffers": options.shared_buffers,
            }
            with EmbeddedPostgres(Path(folder) / "data", settings=settings) as postgres:
                measured = measure(postgres.dsn_of("postgres"), options)
    print(show(measured))
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
