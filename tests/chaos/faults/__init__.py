"""How each kind of fault is done: `inject` does one and undoes it, and says what it found to break."""

from collections.abc import Awaitable, Callable

from tests.chaos.faults import clock, network, notifications, points, postgres, processes, sqs
from tests.chaos.plan import Fault
from tests.chaos.stack import System

Injector = Callable[[System, Fault], Awaitable[str]]

_BY_PREFIX: dict[str, Injector] = {
    "kill": processes.kill,
    "lose": processes.lose,
    "term": processes.terminate,
    "pause": processes.pause,
    "postgres": postgres.inject,
    "clock": clock.inject,
    "net": network.inject,
    "notification": notifications.inject,
    "away": processes.hold_away,
    "point": points.inject,
    "claim": points.inject,
    "sqs": sqs.inject,
}


async def inject(system: System, fault: Fault) -> str:
    """Do it, for as long as it lasts; what was done, or "" if there was nothing to break."""
    return await _BY_PREFIX[fault.kind.partition("_")[0]](system, fault)
