"""What the command loads before it reads its arguments: people read help often, and wait for it."""

import subprocess
import sys


def test_help_loads_no_grpc_and_no_client():
    code = "import sys, duly_cli.__main__; print(*sorted({'grpc', 'duly.client', 'pydantic', 'authlib', 'aiohttp'} & {*sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )

    assert done.stdout.split() == []
