"""Names of queues that SQS allows, one for each (lambda, priority)."""

import hashlib
import re
from typing import Final

from duly_core.errors import SettingsError
from duly_core.lambdas.names import QueueKey

_LONGEST_NAME: Final = 80
_LONGEST_PREFIX: Final = 40
_HASH_DIGITS: Final = 16
_PREFIX: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST_PREFIX}}}")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that SQS would refuse, or that leaves no room for the rest.

    Raises:
        SettingsError: it does.
    """
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            f"queue.prefix: {prefix!r} must be 1 to {_LONGEST_PREFIX} letters, digits, hyphens or underscores"
        )


def queue_name(prefix: str, queue: QueueKey) -> str:
    """Name a queue: what of the lambda's name is allowed and fits is for people, the hash tells lambdas apart."""
    digest = hashlib.sha256(queue.lambda_name.encode()).hexdigest()[:_HASH_DIGITS]
    ending = f"-{digest}-{queue.priority:d}"
    slug = _NOT_ALLOWED.sub("-", queue.lambda_name)
    return f"{prefix}-{slug}"[: _LONGEST_NAME - len(ending)] + ending
