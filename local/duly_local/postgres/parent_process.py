"""Keeps a Postgres for as long as somebody needs it: its parent process, which outlives `duly up`.

`python -I -S parent_process.py PID_FD KEEPALIVE_FD SECONDS USER:GROUP COMMAND...`

It starts the command, writes its process id to PID_FD, and ends with it. Whoever needs Postgres holds the other end of
the pipe at KEEPALIVE_FD. When nobody holds it any more, or so many seconds after the parent has died (which the kernel
tells by SIGUSR1), Postgres is shut down. When this process dies, the kernel does the same. Standard library only, and
little of it: this process is there all the time.
"""

import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PATIENCE = 10.0
"""Seconds for a fast shutdown, and again for an immediate one."""


def main() -> None:
    """Start the command, and wait until it ends or is not needed."""
    pid_fd, keepalive, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    for descriptor in (pid_fd, keepalive):
        os.set_inheritable(descriptor, False)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    told = {signal.SIGCHLD: False, signal.SIGUSR1: False}
    for number in told:
        signal.signal(number, lambda number, _: told.__setitem__(signal.Signals(number), True))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    child = _start(sys.argv[4], sys.argv[5:])
    os.write(pid_fd, str(child).encode())
    os.close(pid_fd)
    _wait(child, keepalive, woken, seconds, told)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        os.kill(child, number)
        _end_with(child, time.monotonic() + _PATIENCE, woken)


def _start(owner: str, command: list[str]) -> int:
    library = ctypes.CDLL(None)
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        if owner:
            user, group = map(int, owner.split(":"))
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
        library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT))  # after the change of user, which clears it
        if os.getppid() == keeper:
            os.execvp(command[0], command)  # noqa: S606 (a shell would be one process more)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 (Postgres's log)
    os._exit(1)


def _wait(child: int, keepalive: int, woken: int, seconds: float, told: dict[signal.Signals, bool]) -> None:
    """Return when the child is to be stopped; does not return when it ends."""
    deadline = float("inf")
    while True:
        left = deadline - time.monotonic()
        ready = select.select([keepalive, woken], [], [], None if left == float("inf") else max(0.0, left))[0]
        if woken in ready:
            os.read(woken, 64)
        _end_if_ended(child)
        if told[signal.SIGUSR1] and deadline == float("inf"):
            deadline = time.monotonic() + seconds
        if keepalive in ready or time.monotonic() >= deadline:
            return


def _end_with(child: int, deadline: float, woken: int) -> None:
    while (left := deadline - time.monotonic()) > 0:
        _end_if_ended(child)
        if select.select([woken], [], [], left)[0]:
            os.read(woken, 64)
    _end_if_ended(child)


def _end_if_ended(child: int) -> None:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        os._exit(max(0, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
