"""Holds docs/glossary.md against the code."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| \*\*(.+?)\*\* \| (.*) \|$", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE
)
NAMES = sorted({name for _, meaning in ROWS for name in re.findall(r"`(duly\w*(?:\.\w+)+)`", meaning)})
SOURCES = [
    file
    for folder in ("wire", "core", "services", "server", "local", "cli", "sdk/duly")
    for file in (ROOT / folder).rglob("*.py")
    if not {"v1", "versions", "demo"} & set(file.parts)
]
RETIRED = {
    "aftermath": "crash_reporter",
    "coalescer": "group_commit",
    "crew": "callback_pool",
    "disposal": "message_acks",
    "hinter": "notifier",
    "holdings": "held_claims",
    "inquest": "exit_handler",
    "launcher": "process_starter",
    "lifeline": "keepalive_pipe",
    "outlet": "reference_sender",
    "quietlease": "reclaim_guard",
    "roster": "process_supervisor",
    "standstill": "watchdog",
}
"""Words that earlier code used, in lower case without underscores, and the ones to use instead."""


def test_the_glossary_is_sorted_and_has_each_word_once() -> None:
    words = [word.lower() for word, _ in ROWS]

    assert words == sorted(set(words))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_in_the_glossary_exists_in_the_code(name: str) -> None:
    module, _, symbol = name.rpartition(".")

    if symbol[0].isupper():
        assert hasattr(importlib.import_module(module), symbol)
    else:
        assert importlib.util.find_spec(name)


def test_no_retired_word_is_an_identifier_of_the_product() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name} (say {RETIRED[word]})"
        for file in SOURCES
        for words in [words_in(file)]
        if words  # few files have one at all, and to parse all takes long
        for name in identifiers(file)
        for word in words
        if plain(name) in {word, word + "s"}
    ]

    assert found == []


def words_in(file: Path) -> list[str]:
    text = plain(file.stem + file.read_text("utf-8"))
    return [word for word in RETIRED if word in text]


def plain(text: str) -> str:
    return text.replace("_", "").lower()


def identifiers(file: Path) -> set[str]:
    tree = ast.parse(file.read_text("utf-8"))
    defined = {
        name
        for node in ast.walk(tree)
        for name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "arg", None))
        if isinstance(name, str)
    }
    defined |= {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return defined | {file.stem}
