"""A venv of the benchmark's own, with the rivals in it: made once, and again when the requirements change."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.system import ROOT, BenchmarkError

FOLDER = ROOT / ".venv-bench"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def python() -> str:
    """The venv's Python.

    Raises:
        BenchmarkError: the rivals cannot be installed; quotes pip.
    """
    stamp = FOLDER / ".installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    program = FOLDER / "bin" / "python"
    if not stamp.is_file() or stamp.read_text(encoding="ascii") != wanted:
        print(f"installing the rivals into {FOLDER.name} (once; about a minute)", file=sys.stderr, flush=True)
        shutil.rmtree(FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        pip = [program, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
        answer = subprocess.run([*pip, "-r", REQUIREMENTS], check=False, capture_output=True, text=True)
        if answer.returncode:
            raise BenchmarkError(f"the rivals cannot be installed: {answer.stderr.strip()[-500:]}")
        stamp.write_text(wanted, encoding="ascii")
    return str(program)
