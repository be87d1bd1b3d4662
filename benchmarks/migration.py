"""`python -m benchmarks.migration`: how many rows a second each kind of step reads or changes, on a Postgres of its own.

`duly migrate --plan` estimates times by these rates. They are of `attempt`, whose rows are small, with all of its indexes.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import tempfile
import time
from pathlib import Path

import psycopg

from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.schema.steps import NEWEST, STEPS, read_steps
from duly_local.postgres.embedded import EmbeddedPostgres

_STEPS = {
    "expand": "alter table attempt add column note text;",
    "backfill": "update attempt set note = 'none' where (task_id, fence) in "
    "(select task_id, fence from attempt where note is null limit %(batch)s)",
    "index": "create index concurrently attempt_by_note on attempt (note)",
    "expand, unchecked": "alter table attempt add constraint attempt_note check (length(note) < 100) not valid;",
    "expand, reads a table": "alter table attempt validate constraint attempt_note;",
}
_FILL = """
insert into attempt (task_id, fence, attempt, outcome, holder, ended_at, failure_kind)
select gen_random_uuid(), 1, 1, 'crashed', 'host', now(), 4 from generate_series(1, %s)
"""


def main() -> None:
    """Measure each step once, and print its rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "data") as postgres:
        migrate(postgres.dsn)
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(_FILL, [rows])
            connection.execute("vacuum (analyze) attempt")
        steps_folder = Path(folder) / "steps"
        steps_folder.mkdir()
        for number, (kind, text) in enumerate(_STEPS.items(), start=int(NEWEST) + 1):
            step = f"-- A step.\n-- step: {kind.partition(',')[0]}\n{text}"
            (steps_folder / f"{number:04}_step.sql").write_text(step, encoding="utf-8")
            began = time.perf_counter()
            migrate(postgres.dsn, steps=(*STEPS, *read_steps(steps_folder)))
            took = time.perf_counter() - began
            print(f"{kind:24} {took:8.2f} s {rows / took:12,.0f} rows a second")


if __name__ == "__main__":
    main()
