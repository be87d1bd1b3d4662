"""Which slot's thread ended a callback process, by what the process left."""

import os
import signal

import pytest

from duly.callbacks import callback
from duly_executor.processes.exit_record import ExitRecord

SLOTS = "slot 0 is thread 0xa\nslot 1 is thread 0xb\n"
EXIT = "os._exit in thread {}\n"
FATAL = "Fatal Python error: Segmentation fault\n\nCurrent thread {} (most recent call first):\n"


def slot(text: str, code: int) -> int | None:
    left = ExitRecord()
    os.write(left.descriptor, (SLOTS + text).encode())
    left.read(code)
    return left.slot


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("", 1, None),
        (EXIT.format("0xb"), 7, 1),
        (FATAL.format("0xa"), -signal.SIGSEGV, 0),
        (EXIT.format("0xc"), 7, None),
        (FATAL.format("0xa") + EXIT.format("0xb"), 7, 1),
        (FATAL.format("0xa"), -signal.SIGKILL, None),
    ],
    ids=["nothing", "exit", "signal", "no slot", "a signal that was survived", "a signal, and then SIGKILL"],
)
def test_the_last_end_that_fits_the_exit_code_names_the_slot(
    text: str, code: int, expected: int | None
) -> None:
    assert slot(text, code) == expected


def stack(text: str, code: int) -> str:
    left = ExitRecord()
    os.write(left.descriptor, (SLOTS + text).encode())
    left.read(code)
    return left.stack


FRAMES = """  File "/app/shop.py", line 3 in inner
  File "/app/shop.py", line 9 in price
  File "CALLBACK_MODULE", line 70 in call
  File "/lib/duly/invoke.py", line 59 in run

Thread 0xb (most recent call first):
  File "/app/shop.py", line 20 in another
""".replace("CALLBACK_MODULE", callback.__file__)


def test_the_stack_of_a_fatal_signal_is_the_callbacks_own() -> None:
    assert stack(FATAL.format("0xa") + FRAMES, -signal.SIGSEGV) == (
        "Fatal Python error: Segmentation fault (most recent call first)\n"
        '  File "/app/shop.py", line 3 in inner\n  File "/app/shop.py", line 9 in price\n'
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 1), (EXIT.format("0xb"), 7), (FATAL.format("0xa") + FRAMES, -signal.SIGKILL)],
    ids=["nothing", "exit", "a signal, and then SIGKILL"],
)
def test_without_a_fatal_signal_of_a_slot_there_is_no_stack(text: str, code: int) -> None:
    assert stack(text, code) == ""
