"""Lets a debugger attach to a callback process, if a developer asked for it (`executor.debug_port`)."""

import logging
import os
import socket
from contextlib import closing

DEBUG_PORT = "DULY_DEBUG_PORT"
"""The variable of the environment by which an Executor names the port on which its callback processes let a debugger attach."""
_HOST = "127.0.0.1"
_FIRST = 0
"""The place of the process that must listen. Others may live beside it, and find the port taken."""
_log = logging.getLogger("duly.callback")


class CannotDebugError(Exception):
    """No debugger can attach; says what to do."""


def listen(process_number: int) -> None:
    """Let a debugger attach to this process, if its Executor named a port; do not wait for one.

    Raises:
        CannotDebugError: debugpy is missing, or this is the first process and the port is taken.
    """
    port = int(os.environ.pop(DEBUG_PORT, "0"))
    if not port:
        return
    try:
        _check_free(port)
        _listen(port)
    except CannotDebugError as error:
        if process_number == _FIRST:
            raise
        _log.warning("no debugger can attach to this callback process: %s", error)


def _check_free(port: int) -> None:
    """Refuse a port that is taken: debugpy says so after ten seconds only, in many lines."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise _taken(port, error.strerror) from error


def _listen(port: int) -> None:
    try:
        import debugpy  # noqa: T100 (for a debugger, and only if somebody asked for it)
    except ImportError as error:
        raise CannotDebugError(
            f"--debug-port (executor.debug_port) needs debugpy in the worker's environment ({error}): pip install debugpy"
        ) from error
    # else Python programs that a callback starts wait for a debugger, and not each IDE attaches to them
    debugpy.configure(subProcess=False)
    try:
        debugpy.listen((_HOST, port))  # noqa: T100 (for a debugger, and only if somebody asked for it)
    except (OSError, RuntimeError) as error:
        raise _taken(port, error) from error
    _log.warning(
        "a debugger can attach at %s:%s; max_runtime does not hold; any user of this machine can run code here",
        _HOST,
        port,
    )


def _taken(port: int, reason: object) -> CannotDebugError:
    return CannotDebugError(
        f"the debugger cannot listen on {_HOST}:{port}: {reason}. Name another port with --debug-port (executor.debug_port); a "
        "worker that is debugged has one Executor"
    )
