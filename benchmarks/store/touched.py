"""What one statement touches: pages by EXPLAIN (ANALYZE, BUFFERS), which does not depend on how busy the machine is."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from duly_core.postgres import arrays
from duly_core.postgres.pool import connect_arguments
from duly_core.postgres.session_options import PLANNED_ANEW
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement

_PARAMETER = re.compile(r"%\((\w+)\)b")
_WITHOUT_LIMITS = "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0"


@dataclass(frozen=True, slots=True)
class Touched:
    """One execution."""

    rows: int
    pages: int
    """Found in memory or read, each time that one was looked at."""
    planning_ms: float
    execution_ms: float


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A connection as the services' own, that makes literals of parameters."""
    arguments = connect_arguments(StoreSettings(dsn=dsn))
    connection = psycopg.connect(**arguments, autocommit=True, cursor_factory=psycopg.ClientCursor)
    connection.execute(_WITHOUT_LIMITS)
    return connection


def connect_in_binary(dsn: str) -> psycopg.Connection[Any]:
    """A connection as the services' own, with statements that are prepared and take whole columns."""
    connection = psycopg.connect(**connect_arguments(StoreSettings(dsn=dsn)), autocommit=True)
    connection.execute(_WITHOUT_LIMITS)
    connection.prepare_threshold = 0
    for kind in arrays.KINDS:
        connection.adapters.register_dumper(kind, arrays.dumper(kind))
    return connection


def touched(
    connection: psycopg.Connection[Any],
    statement: Statement,
    parameters: Mapping[str, Any],
    *,
    anew: bool = False,
) -> Touched:
    """Run it prepared, as the services do, see what it touched, and take it back; `anew`: planned for this run."""
    names = list(dict.fromkeys(_PARAMETER.findall(statement.sql)))
    if not connection.execute(
        "select from pg_prepared_statements where name = %s", [statement.name]
    ).rowcount:
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement.sql)
        numbered = numbered.replace("%%", "%")
        # what Postgres would take for a text
        kinds = ["timestamptz" if isinstance(parameters[name], datetime) else "unknown" for name in names]
        head = f"{statement.name} ({', '.join(kinds)})" if names else statement.name
        connection.execute(f"prepare {head} as {numbered}".encode())
    values = ", ".join(f"%({name})s" for name in names)
    executed = f"execute {statement.name}({values})" if names else f"execute {statement.name}"
    query = f"explain (analyze, buffers, timing off, format json) {executed}"
    connection.execute("begin")
    try:
        if anew:
            connection.execute(PLANNED_ANEW)
        ((explained,),) = connection.execute(query.encode(), parameters).fetchall()
    finally:
        connection.execute("rollback")
    plan = explained[0]["Plan"]
    nodes = list(_nodes(plan))
    read = {node["CTE Name"] for node in nodes if "CTE Name" in node}
    # what nobody reads from runs after the plan's top, and is not counted there
    apart = [
        node
        for node in nodes
        if (name := node.get("Subplan Name", "")).startswith("CTE ") and name[4:] not in read
    ]
    return Touched(
        rows=plan["Actual Rows"],
        pages=sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in (plan, *apart)),
        planning_ms=explained[0]["Planning Time"],
        execution_ms=explained[0]["Execution Time"],
    )


def literal(statement: Statement) -> str:
    """The statement for a cursor that writes parameters as text."""
    return statement.sql.replace(")b", ")s")


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
