"""What an Executor says of its host, and which queues it serves by that."""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from duly_core.errors import SettingsError
from duly_wire.queue_names import check_labels
from duly_wire.v1 import registry_pb2

_EXAMPLE = 'write ["gpu", "region=eu"] in the file, or "gpu, region=eu"'
_BETWEEN = re.compile(r"[\s,]+")


def parse_labels(text: str) -> tuple[str, ...]:
    """Read `gpu, region=eu`; sorted, each once.

    Raises:
        ValueError: one is no label, or there are too many.
    """
    labels = check_labels(filter(None, _BETWEEN.split(text)))
    return tuple(labels.split(",")) if labels else ()


def _as_text(value: object) -> object:
    """Return a list of the settings file, or a text, in one form."""
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    if not isinstance(value, str):
        raise ValueError(f"must be a list or a text: {_EXAMPLE}")  # noqa: TRY004 (pydantic takes a TypeError for a bug)
    return ", ".join(parse_labels(value))


LabelsText = Annotated[str, BeforeValidator(_as_text)]


def runnable(
    declared: Sequence[registry_pb2.Lambda], labels: Sequence[str], application: str
) -> list[registry_pb2.Lambda]:
    """Return those of these lambdas that require no other labels than a host has.

    Raises:
        SettingsError: there is none.
    """
    has = frozenset(labels)
    found = [each for each in declared if has.issuperset(each.requires)]
    if not found and declared:
        missing = sorted({label for each in declared for label in each.requires} - has)
        raise SettingsError(
            f"{application}: each of its lambdas requires labels that this host has not: {', '.join(missing)}. Start the "
            f"worker with --label {missing[0]} (executor.labels) where it is true"
        )
    return found
