"""Write `core/sql/`: the text of the schema, the functions and the statements as Postgres gets it (`make sql`)."""

from collections.abc import Iterator
from pathlib import Path

from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.statements import TWINS, load, load_twins, statement_files

FOLDER = Path(__file__).parents[1] / "core" / "sql"
SCHEMA = "schema.sql"
_HEAD = "-- Written by `make sql` from {source}. Edit that.\n\n"


def pages() -> dict[str, str]:
    """Return the text of each file, by its name."""
    statements = {
        Path(name).name: _HEAD.format(source=f"core/duly_core/{name}") + "\n".join(_statements(name))
        for name in statement_files()
    }
    schema = _HEAD.format(source="schema.sql and functions.sql of the folders of core/duly_core/")
    return {SCHEMA: schema + schema_sql("public")} | statements


def _statements(name: str) -> Iterator[str]:
    for statement in (
        *load(name).values(),
        *(twin for kind in TWINS for twin in load_twins(name, kind).values()),
    ):
        yield f"-- name: {statement.name}\n{statement.sql};\n"


def main() -> None:
    """Write the files, and remove those that are none any more."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.sql"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
