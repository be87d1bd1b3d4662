"""What a supervisor needs: the processes to run, and their timeouts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.errors import DulyError


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process. Its program calls `die_with_parent` itself, so that it ends with us whatever happens."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to our own environment."""
    addresses: tuple[str, ...] = ()
    """`host:port` of each gRPC server that it must report as serving; none: it is ready as soon as it runs."""
    depends_on: tuple[str, ...] = ()
    """Children that are ready before this one first starts, and stop after it."""
    cleanup_grace: timedelta = timedelta(seconds=1)
    """How long what it leaves behind in its process group may take to end by itself."""
    inherits: tuple[int, ...] = ()
    """Descriptors that it is given besides its output."""
    reloads: bool = False
    """When it cannot work as it is set up, wait for a restart instead of giving up."""


@dataclass(frozen=True, slots=True)
class SupervisionTiming:
    """How patient supervision is."""

    first_delay: timedelta = timedelta(milliseconds=200)
    longest_delay: timedelta = timedelta(seconds=5)
    """A child that ends is started again after the first delay, then after twice as long, up to this."""
    healthy_after: timedelta = timedelta(seconds=10)
    """A child that was ready for so long begins with the first delay again."""
    ready_within: timedelta = timedelta(seconds=30)
    """A child that takes longer is complained about, and waited for all the same."""
    grace: timedelta = timedelta(seconds=15)
    """Between SIGTERM and SIGKILL."""


class ChildGaveUpError(DulyError):
    """A child says that it cannot work as it is set up: starting it again would not help."""
