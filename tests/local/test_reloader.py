"""When a worker is restarted for its application's sake, and when it is left as it is."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly_local.reloader import Probed, Reloader, probe

SHOP = """
import duly
import prices_to_probe

app = duly.App()


@app.callback("price")
def price(): ...


if table := getattr(prices_to_probe, "TABLE", None):
    app.time_table("price.daily", "price", **table)
"""


class Worker:
    """What a reloader does to it, and what a probe of its application will show."""

    def __init__(self, *files: Path) -> None:
        self.files = frozenset(map(str, files))
        self.error = ""
        self.restarts: asyncio.Queue[None] = asyncio.Queue()
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.probed = asyncio.Event()

    async def restart(self) -> None:
        self.restarts.put_nowait(None)

    async def probe(self) -> Probed:
        self.probed.set()
        return Probed(self.files, self.error)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.py"
    file.write_text("first")
    return file


@pytest.fixture
async def worker(source: Path) -> AsyncIterator[Worker]:
    """A worker that a reloader looks after."""
    worker = Worker(source)
    reloader = Reloader(
        "shop:app", worker.restart, worker.said.put_nowait, worker.probe, timedelta(milliseconds=5)
    )
    running = asyncio.create_task(reloader.run())
    await worker.probed.wait()
    await asyncio.sleep(0)
    yield worker
    running.cancel()


async def soon(queue: asyncio.Queue) -> object:
    return await asyncio.wait_for(queue.get(), 10)


async def test_a_change_restarts_the_worker_once_and_names_the_file(worker: Worker, source: Path) -> None:
    source.write_text("second text")

    await soon(worker.restarts)

    assert await soon(worker.said) == "shop.py changed: restarting the worker with the new code"
    assert worker.restarts.empty()


async def test_an_application_that_cannot_be_imported_leaves_the_old_code_running(
    worker: Worker, source: Path
) -> None:
    worker.error = "shop.py:1: invalid syntax"
    source.write_text("second text")

    said = await soon(worker.said)

    assert said == "shop.py changed, and the old code keeps running: shop.py:1: invalid syntax"
    assert worker.restarts.empty()
    worker.error = ""
    source.write_text("the third text")
    await soon(worker.restarts)


async def test_a_file_that_was_missing_is_noticed_when_it_comes(worker: Worker, source: Path) -> None:
    worker.error = "there is no module 'prices'"
    source.write_text("import prices")
    await soon(worker.said)

    worker.error = ""
    (source.parent / "prices.py").write_text("")

    await soon(worker.restarts)


@pytest.mark.timeout(120)
async def test_a_probe_tells_the_files_of_the_application_and_of_what_it_imports(source: Path) -> None:
    (source.parent / "shop_to_probe.py").write_text(f"print('at import')\n{SHOP}")
    (source.parent / "prices_to_probe.py").write_text("import json\n")

    probed = await probe("shop_to_probe:app", {})

    assert probed.error == ""
    assert {Path(file).name for file in probed.files} == {"shop_to_probe.py", "prices_to_probe.py"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("prices", "error"),
    [
        ("def (", "prices_to_probe.py:1: def ("),
        ("1 / 0", "ZeroDivisionError"),
        ("import os\nos._exit(3)", "exit code 3"),
        ("import nowhere", "imports 'nowhere', which is not installed"),
        ("TABLE = {'cron': '0 7 * * *', 'zone': 'Europe/Nowhere'}", "'Europe/Nowhere' is no time zone"),
    ],
)
async def test_a_probe_tells_why_an_import_fails(source: Path, prices: str, error: str) -> None:
    (source.parent / "shop_to_probe.py").write_text(SHOP)
    (source.parent / "prices_to_probe.py").write_text(prices)

    probed = await probe("shop_to_probe:app", {})

    assert error in probed.error
    if "_exit" not in prices:
        assert {Path(file).name for file in probed.files} == {"shop_to_probe.py", "prices_to_probe.py"}
