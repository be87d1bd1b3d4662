"""How a process tells its supervisor that it is ready: a line for each address that serves, on an inherited pipe."""

import os
from contextlib import suppress

READY_PIPE = "DULY_READY_PIPE"
"""The descriptor of its writing end."""

_descriptor = -1


def take_ready_pipe() -> None:
    """Take the pipe that the parent passed on, if it did; it is not for our own children."""
    global _descriptor
    told = os.environ.pop(READY_PIPE, None)
    if told is not None:
        _descriptor = int(told)
        os.set_inheritable(_descriptor, False)


def tell_serving(address: str) -> None:
    """Report that this address serves."""
    if _descriptor >= 0:
        with suppress(OSError):  # the supervisor knows already, or is gone
            os.write(_descriptor, f"{address}\n".encode())
