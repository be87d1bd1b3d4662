"""Runs the few tests that failed beside others once more, alone: `python -m scripts.failed_again STATUS ARGUMENTS`.

`make test-all` calls it with pytest's exit status and arguments. It passes only if each of them passes now, and it names them.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MOST = 5
"""More failures than these are no accident of a busy machine."""
_STOPS_EARLY = re.compile(r"--exitfirst|--maxfail|-[a-zA-Z]*x")
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed_tests(status: int, record: Path, arguments: Sequence[str] = ()) -> list[str]:
    """Return the tests to run again; none: the run's own verdict stands.

    Args:
        status: of the run. Only 1 says that tests were run, and that some failed.
        record: where pytest keeps which tests failed.
        arguments: of the run. With `-x` or `--maxfail` it may have left out tests.
    """
    if (
        status != pytest.ExitCode.TESTS_FAILED
        or not record.exists()
        or any(map(_STOPS_EARLY.match, arguments))
    ):
        return []
    failed = sorted(json.loads(record.read_text()))
    # a file without `::` could not be imported, which no other test caused
    is_few = len(failed) <= MOST and all("::" in name for name in failed)
    return failed if is_few else []


def main(status: int, arguments: Sequence[str]) -> int:
    """Return the exit status of the whole."""
    failed = failed_tests(status, _LAST_FAILED, arguments)
    if not failed:
        return status
    _say(f"\nduly: {len(failed)} failed beside other tests; again, alone:")
    again = int(pytest.main(["-q", "-n", "0", *failed]))
    if again == pytest.ExitCode.OK:
        _say("\nduly: passed alone, failed beside others (docs/tests.md says what to do):")
        _say("\n".join(f"  FLAKY {name}" for name in failed))
    return again


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
