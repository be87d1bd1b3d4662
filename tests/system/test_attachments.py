"""Files go the whole way: from the client through `duly up` to a callback, and what the callback makes of them back."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.forked_process import ROOT, clean_environment
from tests.fixtures.whole_stack import WholeStack

APP = "examples.reports:app"
LONG = timedelta(seconds=60)

# long: a stack of its own
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(240)]


class Reports(WholeStack):
    """A stack with the example of attachments."""

    program = ("duly_cli", "up", APP, "--free-ports")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("stack")
    started = Reports(folder, "--data", str(folder / "data"))
    try:
        yield started.frontend()
    finally:
        started.stop()


def table(rows: int) -> bytes:
    return b"name,age\n" + b"".join(b"n%d,%s\n" % (row, b"x" if row % 3 else b"7") for row in range(rows))


@pytest.mark.parametrize("rows", [3, 700_000])  # one part, and several
def test_a_task_gets_a_file_and_returns_one(address: str, tmp_path: Path, rows: int) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(table(rows))

    with duly.Client(address) as client:
        task = client.schedule("report.check", {"table": duly.Attachment(path), "column": "age"})
        ended = client.wait(task, LONG, raise_on_failure=True)
        saved = client.fetch(ended.result["wrong"], tmp_path / "wrong.csv")
        read = client.read_attachment(ended.result["wrong"])
        uses = client.attachments(task)

    wrong = [row for row in range(rows) if row % 3]
    assert ended.result["rows"] == rows
    assert saved.read_bytes() == read == b"".join(b"n%d,x\r\n" % row for row in wrong)
    assert [(use.role.name, use.attachment.name) for use in uses] == [
        ("INPUT", "table.csv"),
        ("RESULT", "wrong.csv"),
        ("STDERR", "check.log"),
    ]


def test_a_payload_above_the_limit_goes_the_same_way(address: str) -> None:
    payload = {"table": duly.Attachment(b"a\n"), "column": "y" * 400_000}

    with duly.Client(address) as client:
        task = client.schedule("report.check", payload)
        ended = client.wait(task, LONG, raise_on_failure=True)
        (many,) = client.schedule_many([duly.NewTask("report.check", payload)])
        read = client.get(many).payload

    assert ended.result["rows"] == 0
    assert read["column"] == "y" * 400_000
    assert isinstance(read["table"], duly.Attachment)


def test_the_command_sends_lists_and_fetches_files(address: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(table(4))

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "duly_cli", *arguments],
            cwd=tmp_path,
            env=clean_environment() | {"DULY_ADDRESS": address, "PYTHONPATH": os.fspath(ROOT)},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout

    task_id = command(
        "schedule", "report.check", '{"column": "age"}', "--attach", "table=t.csv", "--wait"
    ).splitlines()[0]
    listed = [json.loads(line) for line in command("attachments", "list", task_id, "--json").splitlines()]
    command("attachments", "fetch", task_id, "--role", "result", "-o", "out.csv")

    assert [each["name"] for each in listed] == ["t.csv", "wrong.csv", "check.log"]
    assert (tmp_path / "out.csv").read_bytes() == b"n1,x\r\nn2,x\r\n"
    assert command("attachments", "fetch", task_id, "check.log", "-o", "-") == "4 rows read\n"
