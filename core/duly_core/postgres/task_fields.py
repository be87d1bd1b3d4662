"""The fields of a task that its caller gives, from `tasks/fields.toml`, and the fragments of SQL that follow from them."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskField:
    """A field."""

    name: str
    """That of the attribute of NewTask."""
    array: str
    """The parameter that has its values, an element for each task."""
    type: str
    """Of an element."""
    optional: bool = False
    """Whether it may be null. An array of nulls is written as an empty one."""
    column: str
    """Of the entity; empty: it has none."""
    asked: str
    """Its name in the row `asked` of a statement."""
    value: str
    """What the entity gets, in terms of `asked`."""
    assoc: bool = False
    """Whether the assoc has the column, too: the task path reads it."""
    compared: bool = False
    """Whether a repeated Schedule must say the same."""
    shown: bool = False
    """Whether a Task of the wire has it, under the name of the column."""
    plain: bool = False
    """Whether tasks that are scheduled by `schedule_plain` and `schedule_one` may have it."""
    of_time_table: bool = False
    """Whether a time table has a column of this name, from which the tasks of its ticks have it."""
    client: str = "null"
    """What a task of duly_schedule has, in terms of its arguments and variables. Empty: the function does not name the column."""


def _read() -> tuple[TaskField, ...]:
    text = files("duly_core").joinpath("tasks/fields.toml").read_text(encoding="utf-8")
    return tuple(map(_field, tomllib.loads(text)["field"]))


def _field(given: dict[str, object]) -> TaskField:
    column = given.get("column", given["name"])
    asked = given.get("asked", column or given["name"])
    defaults: dict[str, object] = {"column": column, "asked": asked, "value": f"asked.{asked}"}
    return TaskField(**(defaults | given))  # type: ignore[arg-type]  # a wrong name or type fails each test


def _of_tick(field: TaskField) -> str:
    """Return what the task of a tick has, in terms of a row `asked` with the columns of its time table."""
    is_derived = field.value != f"asked.{field.asked}"
    if field.of_time_table or field.name == "task_id":
        return f"{field.value if is_derived else f'asked.{field.column}'} as {field.column}"
    # the type of a derived one is not that of its array, and no assoc has it
    return f"{'null' if is_derived else f'null::{field.type}'} as {field.column}"


FIELDS = _read()
"""All fields, in the order of their columns."""
_STORED = [field for field in FIELDS if field.column]
_ON_ASSOC = [field for field in _STORED if field.assoc]
_PLAIN = [field for field in FIELDS if field.plain]
_STORED_PLAIN = [field for field in _PLAIN if field.column]
_OF_CLIENT = [field for field in _STORED if field.client]
_COMPARED = [field for field in _STORED if field.compared]
SHOWN = tuple(field.column for field in _STORED if field.shown)
"""Columns that a Task of the wire has under the same name."""

FRAGMENTS = {
    "fields.arrays": ", ".join(f"%({field.array})b::{field.type}[]" for field in FIELDS),
    "fields.asked": ", ".join(field.asked for field in FIELDS),
    "fields.columns": ", ".join(field.column for field in _STORED),
    "fields.values": ", ".join(field.value for field in _STORED),
    "fields.plain_arrays": ", ".join(f"%({field.array})b::{field.type}[]" for field in _PLAIN),
    "fields.plain_asked": ", ".join(field.asked for field in _PLAIN),
    "fields.plain_scalars": ", ".join(f"%({field.name})b::{field.type} as {field.asked}" for field in _PLAIN),
    "fields.plain_columns": ", ".join(field.column for field in _STORED_PLAIN),
    "fields.plain_values": ", ".join(field.value for field in _STORED_PLAIN),
    "fields.plain_assoc_columns": ", ".join(field.column for field in _STORED_PLAIN if field.assoc),
    "fields.assoc_columns": ", ".join(field.column for field in _ON_ASSOC),
    "fields.assoc_values": ", ".join(field.value for field in _ON_ASSOC),
    "fields.assoc_of_task": ", ".join(f"task.{field.column}" for field in _ON_ASSOC),
    "fields.compared_of_task": ", ".join(f"task.{field.column}" for field in _COMPARED),
    "fields.same": " and ".join(
        f"task.{field.column} is not distinct from {field.value}" for field in _COMPARED
    ),
    "fields.shown_of_task": ", ".join(f"task.{name}" for name in SHOWN),
    "fields.of_time_table": ", ".join(f"table_.{field.column}" for field in _STORED if field.of_time_table),
    "fields.tick_values": ", ".join(map(_of_tick, _STORED)),
    "fields.tick_assoc_values": ", ".join(map(_of_tick, _ON_ASSOC)),
    "fields.client_columns": ", ".join(field.column for field in _OF_CLIENT),
    "fields.client_values": ", ".join(field.client for field in _OF_CLIENT),
    "fields.client_assoc_values": ", ".join(field.client for field in _ON_ASSOC),
    "fields.same_as_client": " and ".join(
        f"task.{field.column} is not distinct from {field.client}" for field in _COMPARED if field.client
    ),
}
"""By name, what statements and functions have in place of lists of columns."""
