"""Makes pages of templates. Everything that a template writes is escaped."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from duly_console import formatting
from duly_console.navigation import COMMANDS, SECTIONS
from duly_core.lambdas.names import namespace_of


def open_templates(static_version: str) -> jinja2.Environment:
    """Read the templates' folder; a template is compiled when it is first used."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "static": f"/static/{static_version}",
        "sections": SECTIONS,
        "commands": COMMANDS,
        "words": formatting.words,
    }
    filters: dict[str, Any] = {
        name: getattr(formatting, name)
        for name in (
            "clock",
            "word",
            "moment",
            "time_of_day",
            "iso",
            "ago",
            "span",
            "duration",
            "count",
            "counted",
            "size",
            "body",
            "field",
            "total_slots",
            "next_step",
            "times",
            "attribute",
            "as_filter",
            "codes",
        )
    }
    environment.filters |= filters | {"query": query, "namespace_of": namespace_of}
    environment.tests["having"] = formatting.has
    return environment


def query(path: str, /, **parameters: object) -> str:
    """Return a path with a query; what is empty is left out. Parameters may have any names."""
    said = {name: value for name, value in parameters.items() if value not in ("", None, False)}
    return f"{path}?{urlencode(said, doseq=True)}" if said else path
