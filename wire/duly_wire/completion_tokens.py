"""Completion tokens: whoever has one may complete the task that it was made for.

A token is the task's id and 32 random bytes, in base64url: 64 characters. Duly keeps its SHA-256 only.
"""

import base64
import hashlib
import os
import re

from duly_wire.ids import TaskId

_ID_BYTES = 16
_RANDOM_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{64}")


def new_completion_token(task_id: TaskId) -> str:
    """Return a token that nobody can guess."""
    return base64.urlsafe_b64encode(task_id + os.urandom(_RANDOM_BYTES)).decode()


def read_completion_token(token: str) -> tuple[TaskId, bytes]:
    """Return the task of a token, and the SHA-256 of the token. Raises ValueError; its text does not have the token."""
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("not a completion token: it has 64 characters of base64url")
    data = base64.urlsafe_b64decode(token)
    return data[:_ID_BYTES], hashlib.sha256(data).digest()
