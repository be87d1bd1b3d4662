"""Shells complete the commands and options of `duly`."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys

import pytest
from typer.main import get_command

from duly_cli.__main__ import app
from duly_cli.startup.known_names import complete_names

PROGRAM = [sys.executable, "-m", "duly_cli"]


def duly(*arguments, **environment):
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def completed(words, shell="bash", **environment):
    """What `duly` answers a shell that has read so much."""
    if shell == "bash":
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    else:
        asked = {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return duly(**asked, **environment, _DULY_COMPLETE=f"complete_{shell}").stdout


# long: one shell shows that the script asks duly; the others differ in its text
@pytest.mark.parametrize(
    "shell",
    ["bash", pytest.param("zsh", marks=pytest.mark.long), pytest.param("fish", marks=pytest.mark.long)],
)
def test_each_shell_gets_a_script_that_asks_duly(shell):
    script = duly("completion", shell).stdout

    assert f"_DULY_COMPLETE=complete_{shell}" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, timeout=60, check=False).returncode == 0


def test_an_unknown_shell_is_refused_by_name():
    done = duly("completion", "tcsh")

    assert done.returncode == 2
    assert "tcsh" in done.stderr


@pytest.mark.long  # starts the program six times; below, bash completes once
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_commands_verbs_and_options_are_completed(shell):
    assert "queues" in completed("duly qu", shell)
    assert "rollback" in completed("duly lambdas roll", shell)
    assert "--include-empty" in completed("duly queues --incl", shell)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash: install bash")
def test_bash_completes_with_the_script(tmp_path):
    program = tmp_path / "duly"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m duly_cli "$@"\n')
    program.chmod(0o755)
    script = f"""
        export PATH={tmp_path}:$PATH
        source <({program} completion bash)
        COMP_WORDS=(duly top --on) COMP_CWORD=2
        $(complete -p duly | sed 's/.*-F \\([^ ]*\\).*/\\1/') {program}
        echo "${{COMPREPLY[@]}}"
    """

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.split() == ["--once"]


async def test_names_come_from_the_frontend(frontend, client, task_states):
    await task_states.register("test.brief")
    await client.put_resource("database", 3)

    async def pressing_tab(words):
        """Again if nothing came: a busy machine may be too slow for a finger that waits."""
        async with asyncio.timeout(50):
            while not (shown := await asyncio.to_thread(completed, words, DULY_ADDRESS=frontend.address)):
                pass
        return shown.split()

    names = [await pressing_tab(words) for words in ("duly lambda show te", "duly resources set da")]

    assert names == [["test.brief"], ["database"]]


def test_without_an_answer_no_name_is_completed_and_nothing_is_said():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        asked = duly(
            _DULY_COMPLETE="complete_bash",
            COMP_WORDS="duly gates delete ",
            COMP_CWORD="3",
            DULY_ADDRESS=f"{host}:{port}",
        )

    assert (asked.stdout.strip(), asked.stderr) == ("", "")


def test_what_a_noun_shows_is_completed():
    root = get_command(app)
    complete_names(root)

    for name, noun in root.commands.items():
        shown = getattr(noun, "commands", {}).get("show")
        for parameter in shown.params if shown else ():
            if parameter.param_type_name == "argument":
                assert parameter._custom_shell_complete is not None, name
    assert root.commands["tables"].commands["create"].params[0]._custom_shell_complete is None
