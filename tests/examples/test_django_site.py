"""The example with Django: its tests pass, in a process of their own, because Django's settings belong to the process."""

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
