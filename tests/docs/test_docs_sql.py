"""The statements that docs/operators/postgres.md gives to an operator who is short of disk space run on Duly's schema."""

import re
from pathlib import Path

import psycopg

_PAGE = (Path(__file__).parents[2] / "docs/operators/postgres.md").read_text(encoding="utf-8")


def test_what_takes_the_space_is_found(dsn: str) -> None:
    section = _PAGE.split("## When disk space runs short\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    tables, wal, slots = filter(str.strip, block.split(";"))

    with psycopg.connect(dsn) as connection:
        names = {row[0] for row in connection.execute(tables.encode())}
        (kept,) = connection.execute(wal.encode()).fetchall()
        connection.execute(slots.encode())

    assert {"task_assoc", "task_rest"} & names
    assert kept[0]
