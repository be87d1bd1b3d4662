"""What the command loads before it knows what it is to do: help is read often, and by people who wait."""

import subprocess
import sys


def test_help_loads_no_grpc_and_no_client():
    code = "import sys, duly_cli.__main__; print(*sorted({'grpc', 'duly.client', 'pydantic', 'authlib', 'aiohttp'} & {*sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )

    assert done.stdout.split() == []
