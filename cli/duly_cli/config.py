"""`duly config`: every setting on one screen, from the classes that define them."""

import ast
import importlib
import importlib.util
import inspect
import itertools
import os
import textwrap
import tomllib
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from duly_core.settings import Section, config_file, format_duration

_SECTIONS = (
    ("duly_frontend.settings", "FrontendSettings"),
    ("duly_store_consumer.settings", "StoreConsumerSettings"),
    ("duly_hsc.settings", "HscSettings"),
    ("duly_controller.settings", "ControllerSettings"),
    ("duly_executor.settings", "ExecutorSettings"),
    ("duly_core.timing", "Timing"),
    ("duly_core.queues.settings", "QueueSettings"),
    ("duly_core.store.settings", "StoreSettings"),
    ("duly_core.rpc.settings", "RpcSettings"),
    ("duly_core.telemetry", "TelemetrySettings"),
)


def sections() -> list[type[Section]]:
    """All sections, in the order in which they are shown."""
    return [getattr(importlib.import_module(module), name) for module, name in _SECTIONS]


def field_notes(section: type[Section]) -> dict[str, str]:
    """What is written under each field of a section: its meaning, in one place only."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(section)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    notes = {}
    for statement, following in itertools.pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            notes[statement.target.id] = " ".join(str(following.value.value).split())
    return notes


def shown(value: Any) -> str:
    """A value as it is written in the environment; a password in an address is left out."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if "://" in text and "@" in text:
        scheme, _, rest = text.partition("://")
        user, _, host = rest.rpartition("@")
        return f"{scheme}://{user.partition(':')[0]}{':***' if ':' in user else ''}@{host}"
    return text


def print_settings() -> None:
    """A line for each setting."""
    path = config_file()
    toml = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    table = Table(
        box=None,
        header_style="bold",
        title=f"settings (file: {path}{'' if path.exists() else ', not there'})",
    )
    for column in ("environment variable", "value", "set by", "meaning"):
        table.add_column(column, no_wrap=column == "environment variable", overflow="fold")
    for section in sections():
        settings = section.load()
        notes = field_notes(section)
        for name in section.model_fields:
            variable = f"DULY_{section.SECTION}_{name}".upper()
            source = (
                "environment"
                if variable in os.environ
                else "file"
                if name in toml.get(section.SECTION, {})
                else "default"
            )
            table.add_row(variable, shown(getattr(settings, name)), source, notes.get(name, ""))
        table.add_section()
    Console().print(table)
