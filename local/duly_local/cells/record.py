"""What a data folder says of the cells in its Postgres: `cells.json`. Read before Postgres runs."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duly_core.errors import DulyError


@dataclass(frozen=True, slots=True)
class CellRecord:
    """As of the last start with cells."""

    addresses: tuple[str, ...]
    """Where the directory may say that this Postgres is, the newest last; more than one: a start was cut short."""
    port: int
    """The port of the last start: the next one takes it again if it is free, so addresses that people noted stay true."""
    number: int
    """How many cells there are; Postgres is started with connections for so many."""
    making: int | None = None
    """How many cells a start that was cut short was to make; None: it was not cut short."""


def record_file(data_directory: Path) -> Path:
    """Return where the record is."""
    return data_directory / "cells.json"


def read_record(data_directory: Path) -> CellRecord | None:
    """Return the record; None: no start made cells there.

    Raises:
        DulyError: it cannot be read.
    """
    path = record_file(data_directory)
    try:
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DulyError(
            f"{path} cannot be read: restore it from a backup. Without it nobody knows where the cells in {data_directory} were"
        ) from error


def _parsed(found: dict[str, Any]) -> CellRecord:
    addresses, making = found["addresses"], found["making"]
    if not isinstance(addresses, list):
        raise TypeError("addresses")
    return CellRecord(
        tuple(map(str, addresses)),
        int(found["port"]),
        int(found["number"]),
        None if making is None else int(making),
    )


def write_record(data_directory: Path, record: CellRecord) -> None:
    """Replace the record, whole or not at all, and durably.

    Raises:
        OSError: the folder cannot be written.
    """
    path = record_file(data_directory)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(data_directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
