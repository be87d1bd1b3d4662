"""Write what later releases must not break: the schema of this release, and its statements, rights and settings (`make schema-baseline`).

On a release only. Then the steps up to it go, and `FIRST` in `steps.py` is its version.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import gzip
import json
from pathlib import Path

from duly_core.postgres.rights import OWNERS_FUNCTIONS, TABLES
from duly_core.postgres.schema.definition import made_names, schema_sql
from duly_core.postgres.schema.steps import NEWEST
from duly_core.postgres.statements import TWINS, load, load_twins, statement_files
from duly_local.all_settings import sections

CORE = Path(__file__).parents[1] / "core"
SCHEMA = CORE / "duly_core" / "postgres" / "schema" / "base.sql.gz"
PROMISES = CORE / "baseline.json.gz"


def promises() -> dict[str, object]:
    """Return what a process of this release uses of the schema and the settings' file."""
    statements = {
        f"{name}: {statement.name}": statement.sql
        for name in statement_files()
        for statement in (
            *load(name).values(),
            *(twin for kind in TWINS for twin in load_twins(name, kind).values()),
        )
    }
    return {
        "version": NEWEST,
        "names": made_names(),
        "statements": statements,
        "rights": TABLES,
        "functions": OWNERS_FUNCTIONS,
        "settings": [f"{section.SECTION}.{name}" for section in sections() for name in section.model_fields],
    }


def main() -> None:
    """Write both files."""
    texts = {SCHEMA: schema_sql("{{schema}}"), PROMISES: json.dumps(promises(), sort_keys=True)}
    for path, text in texts.items():
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
