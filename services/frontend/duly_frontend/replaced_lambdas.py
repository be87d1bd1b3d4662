"""Finds declarations of a lambda that probably should not have replaced the one before."""

from collections import OrderedDict

from duly_core.store.lambda_policy import LambdaPolicy

_MOST_LAMBDAS = 10_000
_MOST_VERSIONS = 10


class ReplacedLambdas:
    """Knows the versions that this Frontend has seen of each lambda: text that is not a number has no order else."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, list[str]] = OrderedDict()

    def warning(self, before: LambdaPolicy | None, now: LambdaPolicy) -> str:
        """Return what is suspicious about a declaration that has just been written; empty: nothing."""
        seen = self._seen.setdefault(now.name, [])
        was_seen = now.version in seen
        if before is not None and before.version not in seen:
            seen.append(before.version)
        if was_seen:
            seen.remove(now.version)
        seen.append(now.version)
        del seen[:-_MOST_VERSIONS]
        self._seen.move_to_end(now.name)
        if len(self._seen) > _MOST_LAMBDAS:
            self._seen.popitem(last=False)
        if before is None or before == now:
            return ""
        if before.owner != now.owner:
            return (
                f"owner {now.owner!r} replaces the declaration of owner {before.owner!r}: the one that starts last holds, "
                "so let one application declare it, or rename one"
            )
        if before.version == now.version:
            return f"another policy under the same version {now.version!r}: the worker that starts last holds"
        older = _is_older(now.version, before.version)
        if older or (older is None and was_seen):
            return (
                f"version {now.version!r} takes back policy and version from {before.version!r}: "
                "stop the workers of the old version, then restart one of the new"
            )
        return ""


def _is_older(version: str, other: str) -> bool | None:
    """Return whether a version like 1.10.2 is older than another; None: they are not written so."""
    try:
        return _numbers(version) < _numbers(other)
    except ValueError:
        return None


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.removeprefix("v").split(".")]
