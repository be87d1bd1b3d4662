"""Keeps gRPC objects of a client alive in forked children, where even destroying them hangs, and refuses clients there."""

from __future__ import annotations

import os
import weakref

from duly.errors import ClosedError

_made_here: weakref.WeakSet[object] = weakref.WeakSet()

# Of the process that forked, or of one before it; never emptied.
_inherited: list[object] = []


class _Grpc:
    """What became of gRPC in this process."""

    is_used = False
    # By the process that forked, or by one before it: calls hang here, or end the process by SIGSEGV or SIGABRT.
    was_used_before_fork = False


def keep_in_children(owner: object) -> None:
    """Let no forked child destroy `owner` and what it refers to: the threads that gRPC waits for are the parent's."""
    _made_here.add(owner)
    _Grpc.is_used = True


def check_no_fork() -> None:
    """Raise ClosedError if this process was forked off one that had a client, even if that was closed."""
    if _Grpc.was_used_before_fork:
        raise ClosedError(
            "gRPC does not work in a process that was forked after a client was made: make clients after the fork, "
            "or start processes by `multiprocessing`'s method spawn"
        )


def _keep() -> None:
    _Grpc.was_used_before_fork |= _Grpc.is_used
    _inherited.extend(_made_here)
    _made_here.clear()


os.register_at_fork(after_in_child=_keep)
