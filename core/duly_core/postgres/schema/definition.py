"""The schema: the `schema.sql` and `functions.sql` of each room, in the order in which they build on each other."""

import re
from importlib.resources import files

from duly_core.postgres.statements import CONSTANTS, resolve
from duly_core.postgres.task_fields import FRAGMENTS

FILES = (
    "postgres/schema.sql",
    "lambdas/schema.sql",
    "lambdas/functions.sql",
    "access/schema.sql",
    "cells/schema.sql",
    "cells/functions.sql",
    "attachments/schema.sql",
    "tasks/schema.sql",
    "tasks/functions.sql",
    "events/schema.sql",
    "fairness/schema.sql",
    "event_addresses/schema.sql",
    "task_output/schema.sql",
    "watches/schema.sql",
    "watches/functions.sql",
    "sessions/schema.sql",
    "sessions/functions.sql",
    "graphs/schema.sql",
    "graphs/functions.sql",
    "limits/schema.sql",
    "limits/functions.sql",
    "time_tables/schema.sql",
    "gates/schema.sql",
    "fleet/schema.sql",
    "trends/schema.sql",
    "slo/schema.sql",
    "pools/schema.sql",
    "problems/schema.sql",
    "notifications/schema.sql",
    "live_settings/schema.sql",
    "upkeep/functions.sql",
    "tasks/client_function.sql",
)

_MADE = re.compile(r"^create (table|function|type) (?:\{\{schema\}\}\.)?(\w+)", re.MULTILINE)


def schema_sql(schema: str) -> str:
    """Return what makes the schema. `schema` is the name, quoted where it needs quotes.

    Some functions run with their owner's rights, and name the schema of all that they use.
    """
    return "\n".join(resolve(_text(name), CONSTANTS | FRAGMENTS | {"schema": schema}) for name in FILES)


def made_names() -> dict[str, list[str]]:
    """Return the names of all that `schema_sql` makes, sorted, by what they are: table, function, type."""
    made = _MADE.findall("\n".join(map(_text, FILES)))
    return {
        kind: sorted({name for kind_, name in made if kind_ == kind})
        for kind in ("table", "function", "type")
    }


def _text(name: str) -> str:
    return files("duly_core").joinpath(name).read_text(encoding="utf-8")
