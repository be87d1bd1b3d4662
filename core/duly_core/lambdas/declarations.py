"""Decides what a host's declaration of a lambda does to the one in force (decision 0041)."""

import enum
from collections.abc import Collection
from dataclasses import dataclass

from duly_core.lambdas.policy import LambdaPolicy


class Verdict(enum.Enum):
    """What becomes of a declaration."""

    NEW = "new"
    """The lambda was not registered; it is now."""
    CHANGED = "changed"
    """It replaces the one in force."""
    UNCHANGED = "unchanged"
    """It is the one in force already."""
    OLDER = "older"
    """A newer version stays in force."""
    DELETED = "deleted"
    """The lambda was deleted; a version from before does not bring it back."""
    NOT_OWNER = "not owner"
    """Somebody else owns the lambda."""
    NO_LAMBDA = "no lambda"
    """A queue of a version, of a lambda that is not registered."""


IN_FORCE = frozenset({Verdict.NEW, Verdict.CHANGED, Verdict.UNCHANGED})


@dataclass(frozen=True, slots=True)
class Standing:
    """What the store has of a lambda."""

    in_force: LambdaPolicy | None = None
    revision: int = 0
    superseded: Collection[str] = ()
    """Versions that were in force, or still are."""
    deleted: LambdaPolicy | None = None
    """Owner and version of a lambda that was deleted."""


def decide(declared: LambdaPolicy, standing: Standing) -> Verdict:
    """Return what becomes of a declaration. A version that was never in force is newer, unless its numbers are lower."""
    current = standing.in_force
    if current is None:
        gone = standing.deleted
        if gone is None or declared.owner != gone.owner:
            return Verdict.NEW
        is_new = _is_newer(declared.version, gone.version, standing.superseded)
        return Verdict.NEW if is_new else Verdict.DELETED
    if current.owner and declared.owner != current.owner:
        return Verdict.NOT_OWNER
    if declared == current:
        return Verdict.UNCHANGED
    if declared.version == current.version or _is_newer(
        declared.version, current.version, standing.superseded
    ):
        return Verdict.CHANGED
    return Verdict.OLDER


def pinned_name(lambda_name: str, version: str) -> str:
    """Return the queue of the tasks that are pinned to a version of a lambda."""
    return f"{lambda_name}@{version}"


def is_of_lower_numbers(version: str, than: str) -> bool:
    """Tell whether both are of numbers, as 1.10.2, and the first is lower. Other versions have no order by themselves."""
    try:
        return _numbers(version) < _numbers(than)
    except ValueError:
        return False


def _is_newer(version: str, than: str, superseded: Collection[str]) -> bool:
    if version == than or version in superseded:
        return False
    try:
        return _numbers(version) >= _numbers(than)
    except ValueError:
        return True


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version like 1.10.2.

    Raises:
        ValueError: it is not written so, and has no order by itself.
    """
    return [int(part) for part in version.removeprefix("v").split(".")]
