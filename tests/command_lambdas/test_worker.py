"""`duly worker --commands`: a callback process runs the lambdas of a file."""

from pathlib import Path

import pytest

from duly_cli.startup.light_start import command_lambdas
from duly_core.errors import ApplicationError
from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.process import CallbackProcess


async def start(file: Path) -> CallbackProcess:
    return await CallbackProcess.start(
        0, "executor-id", command_lambdas(str(file)), SlotBoard.create(1, 1), ProcessTree()
    )


async def test_a_callback_process_declares_the_lambdas_of_a_file(tmp_path: Path, in_root: None) -> None:
    (tmp_path / "commands.toml").write_text('owner = "team-data"\n[lambdas."chores/bash"]\nshell = "bash"\n')
    process = await start(tmp_path / "commands.toml")

    (declared,) = await process.hello()

    assert (declared.name, declared.owner) == ("chores/bash", "team-data")
    process.kill()
    await process.ended()


async def test_a_program_that_is_not_installed_stops_the_worker(tmp_path: Path, in_root: None) -> None:
    (tmp_path / "commands.toml").write_text('[lambdas."chores/run"]\nprograms = ["no-such-program"]\n')
    process = await start(tmp_path / "commands.toml")

    with pytest.raises(
        ApplicationError, match=r"commands.toml: lambdas.chores/run.programs: .* is not installed"
    ):
        await process.hello()
