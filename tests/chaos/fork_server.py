"""Forks the processes of a run from one that has imported everything: starting an interpreter costs half a second.

A fork server is single-threaded and opens no gRPC channel and no connection, so what it forks starts from a clean state.
It is the subreaper of all that it forks: whatever a run leaves behind is below it.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from duly_core.process import failpoints
from duly_core.process.parent import PARENT_PID, become_subreaper
from tests.chaos.process_tree import descendants
from tests.chaos.roles import ROLES
from tests.fixtures.namespaces import NAMESPACE, enter

LONGEST = 256 * 1024
"""Bytes of a request."""
_STANDARD = 3
_ENDS_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.02


def start_fork_server() -> tuple[int, socket.socket]:
    """Fork one; its process id, and our end of its link. It ends, with all that it forked, when that is closed.

    Call it before this process has threads, event loops or connections.
    """
    assert threading.active_count() == 1, "threads do not survive a fork"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()  # so that no child copies these pages because its collector looks at them
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    ours.close()
    try:
        _serve(theirs)
    except Exception:  # noqa: BLE001 (whatever it is, this process ends here)
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(link: socket.socket) -> None:
    """Fork what is asked for, and tell of each end, until the link is closed."""
    os.setsid()
    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, _noted)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    forked: set[int] = set()
    poll = select.poll()
    poll.register(link, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if woken.fileno() in ready:
            with suppress(BlockingIOError):
                woken.recv(4096)
            _reap(forked, link)
        if link.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(link, LONGEST, 1)
            if not request:
                break
            pid = os.fork()
            if not pid:
                for end in (link, woken, waker):
                    end.close()
                _become(json.loads(request), descriptors[0])
            os.close(descriptors[0])
            forked.add(pid)
            _tell(link, {"forked": pid})
    _end_all()


def _noted(_number: int, _frame: object) -> None:
    """Be woken; the loop reaps."""


def _reap(forked: set[int], link: socket.socket | None) -> None:
    """Bury whoever is dead; orphans of those that we forked among them."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in forked and link is not None:
                forked.discard(pid)
                _tell(link, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(link: socket.socket, event: dict[str, Any]) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        link.send(json.dumps(event).encode())


def _end_all() -> None:
    """Leave nobody behind."""
    until = time.monotonic() + _ENDS_WITHIN_S
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(set(), None)
        time.sleep(_LOOK_EVERY_S)


def _become(request: dict[str, Any], output: int) -> NoReturn:
    """Be what was asked for, as if the program had been started with this environment."""
    code = 1
    try:
        _start_afresh(request["environment"], output)
        ROLES[request["role"]](request["arguments"])
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    except Exception:  # noqa: BLE001 (whatever it is, this process ends here)
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _start_afresh(environment: dict[str, str], output: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    for descriptor, target in zip(
        (os.open(os.devnull, os.O_RDONLY), output, output), range(_STANDARD), strict=True
    ):
        os.dup2(descriptor, target)
    os.closerange(_STANDARD, max(_open_descriptors(), default=_STANDARD) + 1)
    os.environ.clear()
    os.environ.update(environment)
    os.environ[PARENT_PID] = str(os.getppid())
    if NAMESPACE in os.environ:
        enter(os.environ[NAMESPACE])
    failpoints.set_up()  # the environment was another one when the module was imported


def _open_descriptors() -> Sequence[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 (numbers, not files)


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else 1
