"""The reference of the SDK (docs/sdk) has each public name once, and each says what it means."""

import enum
import inspect
import re
import types
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import duly

PAGES = sorted((Path(__file__).parents[2] / "docs" / "sdk").glob("*.md"))
SHOWN = [
    name
    for page in PAGES
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]
MODULES = {
    "duly.transactional": ("schedule", "schedule_async"),
    "duly.testing": ("MadeAddress", "TIMED_OUT", "TestRun", "run", "run_batch"),
    "duly.encryption": ("AesGcm",),
    "duly.otel": ("instrument", "trace_of", "uninstrument"),
    "duly.webhooks": ("Delivery", "Headers", "key_from_text", "new_key", "signed_headers", "verify"),
    "duly.chores": ("ChoreError", "fetch", "new_task", "place_in"),
}
"""What programs import from modules of their own; a test below finds what is forgotten here."""


def members_of(module: str) -> set[str]:
    """Return the classes and functions that a module defines for others."""
    found = vars(import_module(module)).items()
    return {
        name
        for name, value in found
        if not name.startswith("_")
        and isinstance(value, type | types.FunctionType)
        and value.__module__ == module
    }


def test_every_public_name_is_on_one_page() -> None:
    expected = {f"duly.{name}" for name in duly.__all__}
    expected |= {f"{module}.{name}" for module, names in MODULES.items() for name in names}
    expected |= {
        f"duly.Client.{name}" for name, _ in inspect.getmembers(duly.Client) if not name.startswith("_")
    }

    assert expected - {*SHOWN} == set()
    assert [name for name, times in Counter(SHOWN).items() if times > 1] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_function_of_such_a_module_is_forgotten(module: str) -> None:
    assert members_of(module) <= {*MODULES[module]}


def test_every_page_names_what_exists() -> None:
    assert [name for name in SHOWN if resolved(name) is None] == []


def test_each_has_a_docstring_of_its_own() -> None:
    said = {
        name: inspect.getdoc(value) or ""
        for name in SHOWN
        if isinstance(value := resolved(name), type | types.FunctionType | property)
    }

    assert len(said) > 250
    # what dataclass writes by itself begins with the class and its fields
    assert [name for name, text in said.items() if text.startswith(f"{name.rpartition('.')[2]}(")] == []
    assert [name for name, text in said.items() if len(text.split()) < 3] == []


def test_the_methods_of_public_classes_have_docstrings() -> None:
    classes = [value for name in duly.__all__ if isinstance(value := getattr(duly, name), type)]

    silent = [
        f"{cls.__name__}.{name}"
        for cls in classes
        if not issubclass(cls, enum.Enum)
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and isinstance(value, types.FunctionType | property | classmethod | staticmethod)
        and not inspect.getdoc(value)
    ]

    assert len(classes) > 150
    assert silent == []


def resolved(name: str) -> object:
    """Return what a dotted name leads to; None: nothing."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        try:
            found = import_module(".".join(words[:end]))
        except ModuleNotFoundError:
            continue
        for word in words[end:]:
            found = getattr(found, word, None)
        return found
    return None
