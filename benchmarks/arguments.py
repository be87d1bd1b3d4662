"""Readers of command lines' arguments: what cannot be meant is refused in words, before anything is started."""

import argparse
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

One = TypeVar("One")


def in_range(least: int, most: int) -> Callable[[str], int]:
    """What reads a whole number between these two."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            message = f"{text!r} is not a whole number from {least:,} to {most:,}"
            raise argparse.ArgumentTypeError(message)
        return number

    return read


def new_file(text: str) -> Path:
    """A file that can be written: it is found out before an hour of measurements, not after.

    Raises:
        ArgumentTypeError: its folder is not there, or it is a folder itself.
    """
    path = Path(text)
    if not path.absolute().parent.is_dir() or path.is_dir():
        message = (
            f"{text!r} cannot be written: {'it is a folder' if path.is_dir() else 'its folder is not there'}"
        )
        raise argparse.ArgumentTypeError(message)
    return path


def folder(text: str) -> Path:
    """A folder that is there.

    Raises:
        ArgumentTypeError: it is not.
    """
    path = Path(text).absolute()
    if not path.is_dir():
        message = f"{text!r} is no folder"
        raise argparse.ArgumentTypeError(message)
    return path


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """What reads one of these."""

    def read(text: str) -> str:
        if text not in names:
            message = f"{text!r} is none of {', '.join(names)}"
            raise argparse.ArgumentTypeError(message)
        return text

    return read


def several(one: Callable[[str], One]) -> Callable[[str], list[One]]:
    """What reads some of these, with commas between."""
    return lambda text: [one(part.strip()) for part in text.split(",")]


def seconds(text: str) -> float:
    """More than none, and less than an hour.

    Raises:
        ArgumentTypeError: it is not that.
    """
    return _between(text, 0, 3_600)


def share(text: str) -> float:
    """Between 0 and 1.

    Raises:
        ArgumentTypeError: it is not that.
    """
    return _between(text, 0, 1)


def _between(text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = least
    if not least < number < most:
        message = f"{text!r} is not a number between {least:,} and {most:,}"
        raise argparse.ArgumentTypeError(message)
    return number
