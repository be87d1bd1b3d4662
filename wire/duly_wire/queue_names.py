"""The names of queues: a lambda, with the version that its tasks are pinned to, their domain, and the labels that they require."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

PINNED_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
"""A version that tasks may be pinned to."""
DOMAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
NO_DOMAIN = "default"
"""How people call what belongs to no domain. No domain may have this name."""
LABEL = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}(=[A-Za-z0-9][A-Za-z0-9_.-]{0,62})?")
"""What a host can do or is: `gpu`, `runner=bash`."""
MOST_LABELS = 32
"""Of a host."""
MOST_REQUIRED = 8
"""Labels that a lambda or a task may require."""
_DOMAIN_MARK = "~"
LABELS_MARK = ":"
_BETWEEN_LABELS = ","


class QueueName(NamedTuple):
    """NAME, or NAME@ with a version, `~` and a domain, `:` and labels: each may be missing.

    >>> str(QueueName("disk.check", domain="lab-b")), QueueName.parse("disk.check@2026.11~lab-b").version
    ('disk.check@~lab-b', '2026.11')
    >>> str(QueueName("video.cut", labels="gpu,region=eu")), QueueName.parse("video.cut@:gpu").labels
    ('video.cut@:gpu,region=eu', 'gpu')
    """

    lambda_name: str
    version: str = ""
    domain: str = ""
    """Empty: of no domain."""
    labels: str = ""
    """Those that a host must have, sorted, with commas between them. Empty: none."""

    @classmethod
    def parse(cls, text: str) -> QueueName:
        """Return the parts of a name, whether these are valid or not."""
        lambda_name, _, rest = text.partition("@")
        rest, _, labels = rest.partition(LABELS_MARK)
        version, _, domain = rest.partition(_DOMAIN_MARK)
        return cls(lambda_name, version, domain, labels)

    @property
    def base(self) -> str:
        """The name of the queue that requires no labels."""
        return str(self._replace(labels=""))

    @property
    def required(self) -> frozenset[str]:
        """The labels that a host must have."""
        return frozenset(self.labels.split(_BETWEEN_LABELS)) if self.labels else frozenset()

    def __str__(self) -> str:
        domain = f"{_DOMAIN_MARK}{self.domain}" if self.domain else ""
        labels = f"{LABELS_MARK}{self.labels}" if self.labels else ""
        rest = f"{self.version}{domain}{labels}"
        return f"{self.lambda_name}@{rest}" if rest else self.lambda_name


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


def check_labels(labels: Iterable[str], most: int = MOST_LABELS) -> str:
    """Return labels as names of queues have them: sorted, each once. Raises ValueError for what is no label, and for too many.

    >>> check_labels(["region=eu", "gpu", "gpu"])
    'gpu,region=eu'
    """
    named = sorted({*labels})
    for label in named:
        if LABEL.fullmatch(label) is None:
            message = (
                f"{label[:64]!r} is no label: use 1 to 63 of a-z, 0-9, '_', '.', '-', the first a letter or a digit, and "
                "=VALUE if it has one (A-Z, too)"
            )
            raise ValueError(message)
    if len(named) > most:
        raise ValueError(f"there may be at most {most} labels, not {len(named):,}")
    return _BETWEEN_LABELS.join(named)


def check_required(labels: object) -> str:
    """Return the labels that a lambda or a task requires, as check_labels does. Raises ValueError for anything but some texts."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ValueError(f'must be a list of labels, such as ["gpu"], not {labels!r}')  # noqa: TRY004 (callers expect one kind)
    named = [*labels]
    if not all(isinstance(label, str) for label in named):
        raise ValueError("each label must be a text")
    return check_labels(named, MOST_REQUIRED)


def requiring(name: str, labels: str) -> str:
    """Return the queue of tasks that require these labels, too; `labels` as check_labels returns them.

    Raises ValueError: these are too many.
    """
    queue = QueueName.parse(name)
    required = {*queue.required, *filter(None, labels.split(_BETWEEN_LABELS))}
    return str(queue._replace(labels=check_labels(required, MOST_REQUIRED)))


def queues_for(labels: Collection[str], served: Collection[str], known: Iterable[str]) -> list[str]:
    """Return those of the `known` queues whose labels a host has, of the lambdas and queues that it serves."""
    has = frozenset(labels)
    return sorted(
        name
        for name, queue in ((name, QueueName.parse(name)) for name in known)
        if queue.labels and queue.required <= has and queue.base in served
    )
