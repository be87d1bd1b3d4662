"""Keeps a client's gRPC objects alive in forked children, where even destroying them hangs."""

from __future__ import annotations

import os
import weakref

_made_here: weakref.WeakSet[object] = weakref.WeakSet()

# Of the process that forked, or of one before it; never emptied.
_inherited: list[object] = []


def keep_in_children(owner: object) -> None:
    """Let no forked child destroy `owner` and what it refers to: the threads that gRPC waits for are the parent's."""
    _made_here.add(owner)


def _keep() -> None:
    _inherited.extend(_made_here)
    _made_here.clear()


os.register_at_fork(after_in_child=_keep)
