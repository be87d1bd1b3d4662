"""`duly worker --http`: a callback process runs the lambdas of a file."""

from pathlib import Path

import pytest

from duly.webhooks import new_key
from duly_cli.startup.light_start import http_lambdas
from duly_core.errors import ApplicationError
from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.process import CallbackProcess

FILE = """
owner = "team-mail"
[keys]
k = { file = "key" }
[lambdas."mail.send"]
url = "https://mail.example.org/"
keys = ["k"]
max_attempts = 4
"""


async def start(file: Path) -> CallbackProcess:
    return await CallbackProcess.start(
        0, "executor-id", http_lambdas(str(file)), SlotBoard.create(1, 1), ProcessTree()
    )


async def test_a_callback_process_declares_the_lambdas_of_a_file(tmp_path: Path, in_root: None) -> None:
    (tmp_path / "key").write_text(new_key())
    (tmp_path / "http.toml").write_text(FILE)
    process = await start(tmp_path / "http.toml")

    (declared,) = await process.hello()

    assert (declared.name, declared.owner, declared.max_attempts) == ("mail.send", "team-mail", 4)
    assert declared.max_runtime.ToTimedelta().total_seconds() == 60
    process.kill()
    await process.ended()


async def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, in_root: None) -> None:
    (tmp_path / "http.toml").write_text(FILE)
    process = await start(tmp_path / "http.toml")

    with pytest.raises(ApplicationError, match=r"http.toml: keys.k: .*key: No such file"):
        await process.hello()
