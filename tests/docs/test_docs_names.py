"""The documents name commands, settings, metrics and messages that exist."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer

from duly_cli.__main__ import app
from duly_cli.settings.all_settings_text import sections
from duly_cli.startup.nouns import Noun
from duly_core.postgres import rights
from scripts.reference import metrics

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
CURRENT = [path for path in DOCUMENTS if "decisions" not in path.parts]
SECTIONS = {section.SECTION: set(section.model_fields) for section in sections()}
COMMAND = typer.main.get_command(app)
SOURCES = ("wire", "core", "services", "server", "local", "cli", "sdk")


@cache
def texts() -> tuple[str, ...]:
    """Every text in the source; what is filled in when it runs is an ellipsis."""
    found = []
    for path in (path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


@cache
def known_metrics() -> frozenset[str]:
    """Every metric of the source; reading the source takes a quarter of a second."""
    return frozenset(metrics.names())


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CURRENT, ids=relative)
def test_every_command_exists_with_its_options(path: Path) -> None:
    blocks = re.findall(r"^```\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("duly ")]

    for line in lines:
        words = shlex.split(line.split(" | ")[0], comments=True)[1:]
        words = words[: words.index("--")] if "--" in words else words  # what follows is another program's
        command = COMMAND
        while words and hasattr(command, "commands") and (found := command.get_command(None, words[0])):
            command = found
            words.pop(0)
        if "list" in getattr(command, "commands", {}):  # what a noun does without a verb
            assert not words or words[0][0] in "-[" or command.named, line
            command = command.commands["list"]
        options = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert not hasattr(command, "commands") or command.name in {"db", "chores", "autoscaler", "events"}, (
            line
        )
        assert used <= options | {"--help"}, line


@pytest.mark.parametrize("path", CURRENT, ids=relative)
def test_commands_have_one_form(path: Path) -> None:
    assert other_forms(path.read_text(encoding="utf-8")) == []


def test_messages_name_commands_in_that_form() -> None:
    assert [found for text in texts() for found in other_forms(text)] == []


def other_forms(text: str) -> list[str]:
    """Return the commands in a text that have another name or verb than `duly --help` shows."""
    found = []
    for noun, verb in re.findall(r"(?:`|^|\| )duly ([a-z-]+)(?: ([a-z-]+))?", text, re.MULTILINE):
        command = COMMAND.get_command(None, noun)
        if not isinstance(command, Noun):
            continue
        inner = command.commands.get(verb)
        if noun != command.name or (inner is not None and inner.hidden):
            found.append(f"duly {noun} {verb}")
    return found


@pytest.mark.parametrize("path", CURRENT, ids=relative)
def test_every_setting_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    upper = "|".join(section.upper() for section in SECTIONS)
    named = re.findall(rf"`({'|'.join(SECTIONS)})\.([a-z_]+)(?![\w.])", text)
    named += [(name.lower(), key.lower()) for name, key in re.findall(rf"\bDULY_({upper})_([A-Z_]+)\b", text)]

    assert [(section, key) for section, key in named if key not in SECTIONS[section]] == []


@pytest.mark.parametrize("path", CURRENT, ids=relative)
def test_every_metric_exists(path: Path) -> None:
    named = set(
        re.findall(
            r"\b(duly_[a-z_]+?)(?:_bucket|_sum|_count)?\b(?=[{`\[)= ])", path.read_text(encoding="utf-8")
        )
    )

    others = {
        "duly_now",
        "duly_first_id",
        "duly_core",
        "duly_server",
        "duly_json",
        "duly_transactional",
        "duly_cli",
        "duly_local",
        "duly_async_client",  # of the pytest plugin
        "duly_worker_of",
        "duly_begins_at",
    }
    others |= {*rights.names(), *(name for allowed in rights.OWNERS_FUNCTIONS.values() for name in allowed)}
    assert {name for name in named if name.count("_") > 1} - others <= known_metrics()


def test_every_message_of_the_runbook_is_in_the_code() -> None:
    runbook = (
        (ROOT / "docs/operators/runbook.md")
        .read_text(encoding="utf-8")
        .partition("## Errors at the start")[2]
    )
    messages = re.findall(r"^\| `(.+?)` \| ", runbook, re.MULTILINE)

    missing = [message for message in messages if not any(message.strip("…") in text for text in texts())]

    assert len(messages) > 30
    assert missing == []


def test_every_test_that_failure_tests_md_names_exists() -> None:
    text = (ROOT / "docs/failure-tests.md").read_text(encoding="utf-8").partition("## A.")[2]
    files = {path.name for path in ROOT.glob("tests/**/*.py")}
    names = {
        name
        for path in ROOT.glob("tests/**/*.py")
        for name in re.findall(r"def test_(\w+)", path.read_text())
    }
    named_files = set(re.findall(r"`(test_\w+\.py)", text))
    named = set(re.findall(r"`(?:test_\w+\.py: )?(\w+)\.\.\.`", text))
    whole = set(re.findall(r"`test_\w+\.py: (\w+)`", text))

    missing = {name for name in named if not any(test.startswith(name) for test in names)} | (whole - names)

    assert len(named) > 150
    assert named_files - files == set()
    assert missing == set()


def test_failures_and_their_tests_have_the_same_rows() -> None:
    rows = [
        re.findall(
            r"^\| ([A-G]\d+[a-z]?) \|", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE
        )
        for page in ("failures.md", "failure-tests.md")
    ]

    assert len(rows[0]) > 80
    assert rows[0] == rows[1]
