"""What commands print goes through one place, which takes from others' text what a terminal would obey."""

import ast
from pathlib import Path

import duly_cli

CLI = Path(duly_cli.__file__).parent
OWN_WORDS = {
    "__main__.py": "the version",
    "output/colour.py": "lines, each part of which went through it, with colours of its own",
    "output/safe_text.py": "the place itself",
    "output/watching.py": "draws what `say` wrote",
    "fleet/top.py": "draws what `say` wrote",
    "settings/config.py": "the defaults of this release",
    "startup/nouns.py": "the help",
    "startup/completion.py": "a script for the shell",
    "tasks/run_here.py": "bytes, for a file",
}
"""Modules that write to the terminal by themselves, and what."""


def writes(module: Path) -> bool:
    calls = (
        node.func for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.Call)
    )
    names = {ast.unparse(each) for each in calls}
    return bool(names & {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"})


def test_commands_print_by_say_alone() -> None:
    found = {path.relative_to(CLI).as_posix() for path in CLI.rglob("*.py") if writes(path)}

    assert found == OWN_WORDS.keys()
