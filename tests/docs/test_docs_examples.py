"""The examples of the quickstart and of the page for clients are Python that fits the SDK."""

import ast
import asyncio
import base64
import json
import re
import runpy
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import HTTPServer
from pathlib import Path

import pytest

import duly
from duly import webhooks
from duly.callbacks.loading import load_app
from duly.testing import TestRun, run
from duly_cli.startup.light_start import command_lambdas, http_lambdas
from tests.fixtures.documents import DOCS, blocks, python_blocks


def test_the_application_of_the_quickstart_runs(tmp_path: Path) -> None:
    application, _ = python_blocks("quickstart.md")
    (tmp_path / "mail.py").write_text(application, encoding="utf-8")

    app = runpy.run_path(str(tmp_path / "mail.py"))["app"]

    assert run(app, "mail.send", {"to": "ada@example.org"}).result == "sent to ada@example.org"


def test_the_application_of_the_page_on_time_tables_declares_what_it_says(tmp_path: Path) -> None:
    application, _ = python_blocks("time-tables.md")
    (tmp_path / "report.py").write_text(application, encoding="utf-8")

    app = runpy.run_path(str(tmp_path / "report.py"))["app"]

    (declared,) = app.lambdas()
    assert [table.name for table in declared.time_tables] == ["report.nightly", "report.often"]
    tick = datetime(2026, 11, 22, tzinfo=UTC)
    assert run(app, "report.build", "sales", tick_at=tick).result == f"sales until {tick}"


def test_the_example_of_the_page_on_attachments_runs() -> None:
    *_, test = python_blocks("attachments.md")

    exec(compile(test, "attachments.md", "exec"), {})  # noqa: S102 (our own page)


def test_the_application_of_the_page_on_encryption_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (module,) = python_blocks("encryption.md")
    (tmp_path / "payment.py").write_text(module, encoding="utf-8")
    (tmp_path / "keys.json").write_text(json.dumps({"2026-11": base64.b64encode(bytes(32)).decode()}))
    monkeypatch.setenv("PAYMENT_KEYS", str(tmp_path / "keys.json"))

    app = runpy.run_path(str(tmp_path / "payment.py"))["app"]

    assert app.codec.current == "2026-11"
    assert run(app, "payment.book", {"card": "4111"}).result == {"booked": "4111"}


@pytest.mark.parametrize(
    "page",
    [
        "quickstart.md",
        "clients.md",
        "lambdas.md",
        "time-tables.md",
        "encryption.md",
        "http-lambdas.md",
        "chores.md",
    ],
)
def test_every_method_of_an_example_exists(page: str) -> None:
    used = {
        node.func.attr
        for block in python_blocks(page)
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "client"
    }

    assert used
    assert {name for name in used if not hasattr(duly.Client, name)} == set()


async def test_the_receivers_of_the_page_on_http_lambdas_verify_what_its_file_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = webhooks.new_key()
    (tmp_path / "mail-2026-11.key").write_text(key)
    monkeypatch.setenv("MAIL_HOOK_KEY", key)
    _, receiver, *_ = python_blocks("http-lambdas.md")
    (tmp_path / "receiver.py").write_text(receiver)
    server = HTTPServer(("127.0.0.1", 0), runpy.run_path(str(tmp_path / "receiver.py"))["Receiver"])
    file, webhook, *_ = blocks("http-lambdas.md", "toml")
    url = f"http://127.0.0.1:{server.server_port}/"
    (tmp_path / "http.toml").write_text(
        re.sub("https://[a-z./]+", url, file + webhook)
        + '[network]\nallow_plaintext = true\nallow = ["127.0.0.1/32"]\n'
    )
    app = load_app(http_lambdas(str(tmp_path / "http.toml")))

    with ThreadPoolExecutor() as threads:
        answered = threads.submit(server.handle_request)
        attempt = await asyncio.to_thread(_run_and_close, app, {"to": "ann"})
        answered.result(timeout=10)
    server.server_close()

    assert attempt.result["sent_to"] == "ann"
    assert sorted(app.callbacks) == ["mail.send", "orders.ended"]


def _run_and_close(app: duly.App, payload: object) -> TestRun:
    with asyncio.Runner() as runner:
        attempt = run(app, "mail.send", payload, run_async=runner.run)
        runner.run(app.callbacks["mail.send"].function.__self__.sender.close())
    return attempt


@pytest.mark.skipif(not shutil.which("node"), reason="needs node: install nodejs")
def test_the_receiver_in_node_of_that_page_verifies_and_refuses() -> None:
    key, body = webhooks.new_key(), b'{"to":"ann"}'
    headers = webhooks.signed_headers(
        {"2026-11": webhooks.key_from_text(key)},
        body,
        task_id="01a215a0-ca0b-73b6-8abb-0cb44ca4f999",
        lambda_name="mail.send",
        attempt=1,
        fence=7,
        deadline=datetime(2026, 11, 26, tzinfo=UTC),
    )
    old = headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 301)}
    unsigned = {name: value for name, value in headers.items() if name != "webhook-signature"}
    changed = headers | {"duly-fence": "8"}
    cases = [(headers, body), (changed, body), (headers, body + b" "), (old, body), (unsigned, body)]
    (script,) = blocks("http-lambdas.md", "javascript")
    calls = "\n".join(
        f"console.log(verify({json.dumps(said)}, Buffer.from({sent.decode()!r}), '2026-11', {key!r}));"
        for said, sent in cases
    )

    done = subprocess.run(
        ["node", "-"], input=f"{script}\n{calls}", capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout.split() == ["true", "false", "false", "false", "false"]


def test_the_file_of_the_page_on_chores_runs_the_command_of_the_page(tmp_path: Path) -> None:
    (file,) = blocks("chores.md", "toml")
    (tmp_path / "commands.toml").write_text(f'folder = "{tmp_path}"\n{file}')
    (payload,) = re.findall(
        "duly schedule chores/run '(.*?)' --attach inputs=names.txt", (DOCS / "chores.md").read_text()
    )
    names = duly.Attachment(b"b\na\nb\n", name="names.txt")

    app = load_app(command_lambdas(str(tmp_path / "commands.toml")))
    attempt = run(app, "chores/run", json.loads(payload) | {"inputs": names})

    assert sorted(app.callbacks) == ["chores/bash", "chores/run"]
    assert attempt.outcome is duly.Outcome.SUCCESS, attempt
    assert {each.attachment.name: each.attachment.read() for each in attempt.kept} == {
        "sorted.txt": b"a\nb\n",
        "stderr.txt": b"",
    }
    assert attempt.result.keys() == json.loads(blocks("chores.md", "json")[1]).keys()
