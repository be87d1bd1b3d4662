"""The names of queues: a lambda, with the version that its tasks are pinned to, and the domain that they belong to."""

from __future__ import annotations

import re
from typing import NamedTuple

PINNED_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
"""A version that tasks may be pinned to."""
DOMAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
NO_DOMAIN = "default"
"""How people call what belongs to no domain. No domain may have this name."""
_DOMAIN_MARK = "~"


class QueueName(NamedTuple):
    """NAME, NAME@VERSION, NAME@~DOMAIN or NAME@VERSION~DOMAIN.

    >>> str(QueueName("disk.check", domain="lab-b")), QueueName.parse("disk.check@2026.11~lab-b").version
    ('disk.check@~lab-b', '2026.11')
    """

    lambda_name: str
    version: str = ""
    domain: str = ""
    """Empty: of no domain."""

    @classmethod
    def parse(cls, text: str) -> QueueName:
        """Return the parts of a name, whether these are valid or not."""
        lambda_name, _, rest = text.partition("@")
        version, _, domain = rest.partition(_DOMAIN_MARK)
        return cls(lambda_name, version, domain)

    def __str__(self) -> str:
        domain = f"{_DOMAIN_MARK}{self.domain}" if self.domain else ""
        return f"{self.lambda_name}@{self.version}{domain}" if self.version or domain else self.lambda_name


def check_domain(domain: str) -> str:
    """Return a domain as queues have it: empty for NO_DOMAIN. Raises ValueError for what is no domain."""
    if domain in ("", NO_DOMAIN):
        return ""
    if DOMAIN.fullmatch(domain) is None:
        message = f"{domain[:64]!r} is no domain: use 1 to 63 of a-z, 0-9, '_', '.', '-', the first a letter or a digit"
        raise ValueError(message)
    return domain


def in_domain(name: str, domain: str) -> str:
    """Return the queue of a domain for a queue of none; one that has a domain keeps it."""
    queue = QueueName.parse(name)
    return str(queue._replace(domain=domain)) if domain and not queue.domain else name
