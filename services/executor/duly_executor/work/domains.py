"""Which queues an Executor serves: those of the domains of its host."""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from duly_wire.queue_names import NO_DOMAIN, check_domain, in_domain
from duly_wire.v1 import registry_pb2

_EXAMPLE = 'write ["lab-a", "lab-b"] in the file, or "lab-a, lab-b"'
_BETWEEN = re.compile(r"[\s,]+")


def parse_domains(text: str) -> tuple[str, ...]:
    """Read `lab-a, lab-b`; of no domain is empty. Without a domain there is that alone.

    Raises:
        ValueError: one is no domain.
    """
    named = [check_domain(each) for each in _BETWEEN.split(text) if each]
    return tuple(dict.fromkeys(named)) or ("",)


def _as_text(value: object) -> object:
    """Return a list of the settings file, or a text, in one form."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    if not isinstance(value, str):
        raise ValueError(f"must be a list or a text: {_EXAMPLE}")  # noqa: TRY004 (pydantic takes a TypeError for a bug)
    domains = parse_domains(value)
    return "" if domains == ("",) else ", ".join(each or NO_DOMAIN for each in domains)


DomainsText = Annotated[str, BeforeValidator(_as_text)]


def queues_of(declared: Sequence[registry_pb2.Lambda], domains: Sequence[str]) -> list[registry_pb2.Lambda]:
    """Return the declarations of the queues of these domains: each has the policy of its lambda, and no time tables."""
    queues = []
    for domain in filter(None, domains):
        for each in declared:
            queue = registry_pb2.Lambda()
            queue.CopyFrom(each)
            queue.ClearField("time_tables")
            queue.name = in_domain(each.name, domain)
            queues.append(queue)
    return queues
