"""The example with Django: its tests pass, in a process of their own, because Django's settings belong to the process."""

import runpy
import subprocess
import sys

import pytest

from tests.fixtures.forked_process import ROOT, clean_environment


@pytest.mark.long  # a Postgres of its own
@pytest.mark.timeout(240)
def test_its_tests_pass() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "examples/web/django_site/check_orders.py"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_what_its_dsn_does_not_name_is_left_to_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_DSN", "dbname=orders")
    settings = runpy.run_path(str(ROOT / "examples/web/django_site/settings.py"))

    database = settings["DATABASES"]["default"]
    assert [database[name] for name in ("NAME", "USER", "HOST", "PORT")] == ["orders", "", "", ""]
