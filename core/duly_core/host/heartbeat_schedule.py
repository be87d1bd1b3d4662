"""When an Executor sends heartbeats, and how long it may live between two, under the lease terms that an HSC answered.

Operators change the timeouts of leases while Duly runs, so an Executor goes by the terms of the answers that it got, and
by nothing else. Its deadline under a lease of X ends before X does in the store (docs/lifecycle.md, "Timing").
"""

from dataclasses import dataclass
from datetime import timedelta

from duly_core.config.settings import format_duration
from duly_core.config.timing import RATE_ERROR, Timing
from duly_core.errors import SettingsError

SHORTEST_PERIOD = timedelta(milliseconds=250)
SHORTEST_CALL = timedelta(milliseconds=100)
"""An Executor whose lease needs more frequent heartbeats, or faster answers, ends itself."""
_MOST_STRIKES = 3
"""So many failed calls in a row end an Executor under the terms of its own configuration: ATF's visible rule."""


@dataclass(frozen=True, slots=True)
class HeartbeatSchedule:
    """The times of an Executor under lease terms."""

    process_deadline: timedelta
    """The Executor is dead at most this long after it sent its last acknowledged heartbeat."""
    period: timedelta
    """Between two heartbeats."""
    call_deadline: timedelta
    """How long one heartbeat call may take, with its retries."""
    most_strikes: int
    """So many failed calls in a row end the Executor."""


def schedule_under(
    timing: Timing, claim_timeout: timedelta, heartbeat_timeout: timedelta
) -> HeartbeatSchedule:
    """Return the times under these terms: those of `timing` if the HSC's timeouts are the same.

    A longer lease raises the deadline by what it is longer, and allows more strikes. A shorter one lowers the deadline, the
    period and the time of a call.

    Raises:
        SettingsError: with these terms the heartbeats would have to be sent too often, or a task could run twice at a time.
    """
    lease = min(claim_timeout, heartbeat_timeout)
    own_lease = min(timing.claim_timeout, timing.heartbeat_timeout)
    deadline = timing.process_deadline
    if lease > own_lease:
        deadline += (lease - own_lease) * (1 - 2 * RATE_ERROR)
    else:
        deadline = min(deadline, timing.safe_deadline(lease))
    lateness = timing.scheduling_lateness
    # three periods and a call still end before the deadline, because lateness is taken off on both sides
    share = (deadline - lateness) / (timing.process_deadline - lateness)
    if share < _least_share(timing):
        name = "claim_timeout" if claim_timeout < heartbeat_timeout else "heartbeat_timeout"
        raise SettingsError(
            f"the HSC's {name} is {format_duration(lease)}, too short for this host: its [timing] needs "
            f"{format_duration(shortest_lease(timing))} at least; raise timing.{name} on the HSC (`duly settings`), or use the "
            "same timing.profile on the HSC and on hosts"
        )
    shrink = min(1.0, share)
    return HeartbeatSchedule(
        deadline,
        timing.heartbeat_period * shrink,
        timing.heartbeat_deadline * shrink,
        int(_MOST_STRIKES * max(1.0, share)),
    )


def shortest_lease(timing: Timing) -> timedelta:
    """The shortest lease under which a host with this timing takes work, in whole milliseconds."""
    lateness = timing.scheduling_lateness
    deadline = lateness + _least_share(timing) * (timing.process_deadline - lateness)
    lease = (deadline + timing.kill_latency) / (1 - 2 * RATE_ERROR) + timing.clock_step
    return timedelta(milliseconds=lease // timedelta(milliseconds=1) + 1)


def _least_share(timing: Timing) -> float:
    shortest = max(SHORTEST_PERIOD / timing.heartbeat_period, SHORTEST_CALL / timing.heartbeat_deadline)
    return min(1.0, shortest)
