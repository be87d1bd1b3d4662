"""Make a checker of a Spin model, and run it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MISSING = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
EXHAUSTIVE = bool(os.environ.get("DULY_MODEL_EXHAUSTIVE"))
TIME_S = 3600 if EXHAUSTIVE else 300
_MEMORY_MB = 1500

needs_spin = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{' and '.join(MISSING)} not installed: install spin and gcc, or the models are not checked",
)


def check(model: Path, switches: str, folder: Path, *, ends: bool) -> str:
    """Return what the checker says about all states of a model; `ends` asks that nothing is stuck, too."""
    subprocess.run(
        ["spin", "-a", *switches.split(), str(model)],
        cwd=folder,
        check=True,
        timeout=60,
        capture_output=True,
    )
    # states are kept as hashes of 64 bits and more (HC4): one in 10^9 might be taken for another
    compile_it = [
        "gcc",
        "-O2" if EXHAUSTIVE else "-O1",
        f"-DMEMLIM={_MEMORY_MB}",
        "-DSAFETY",
        "-DHC4",
        "-o",
        "pan",
        "pan.c",
    ]
    subprocess.run(compile_it, cwd=folder, check=True, timeout=120, capture_output=True)
    arguments = ["./pan", "-m200000", "-w24", *([] if ends else ["-E"])]
    ran = subprocess.run(arguments, cwd=folder, check=False, timeout=TIME_S, capture_output=True, text=True)
    assert "max search depth too small" not in ran.stdout, "the search was cut short"
    assert "out of memory" not in ran.stdout, "the search was cut short"
    assert "memory limit" not in ran.stdout, "the search was cut short"
    return ran.stdout
