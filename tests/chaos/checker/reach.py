"""Which faults can end an execution before its time, and where: by their kind, and by what they are done to."""

from tests.chaos.history import Fault

_OF_A_HOST = ("controller", "executor", "callback", "host")
_NEVER = ("notification", "sqs")
"""What is done to notifications and messages has nobody stopped who runs."""


def endangers(fault: Fault, host: str = "") -> bool:
    """Whether an execution on this host (none: on some host) may crash, or be handed back, because of it."""
    kind = fault.kind.removesuffix("?")
    how, _, what = kind.partition("_")
    if how in _NEVER:
        return False
    if how == "net":
        return _cuts(fault.target, host)
    if what in _OF_A_HOST:
        return host in ("", fault.target)
    if what in ("frontend", "store_consumer"):
        # One that is stopped in the middle of a transaction keeps its rows locked, and heartbeats waiting.
        return how == "pause"
    return True


def _cuts(link: str, host: str) -> bool:
    """Heartbeats go from the host to the HSC to the store; and any client of the store may keep rows locked."""
    source, _, target = link.partition(">")
    if target == "postgres":
        return True
    return target.startswith("hsc") and host in ("", source)
