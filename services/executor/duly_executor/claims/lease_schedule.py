"""The heartbeat schedule that the HSCs' answers ask of this Executor."""

from duly_core.config.timing import Timing
from duly_core.host.heartbeat_schedule import HeartbeatSchedule, schedule_under
from duly_core.rpc.requests.times import from_duration
from duly_wire.v1 import hsc_pb2

_MOST_KEPT = 16
_Terms = tuple[int, int, int, int]


class LeaseSchedule:
    """Heartbeats follow the shortest recent lease: HSCs see a change of the timeouts at different times."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self._own = schedule_under(timing, timing.claim_timeout, timing.heartbeat_timeout)
        self._by_terms: dict[_Terms, HeartbeatSchedule] = {}
        self._shortest: HeartbeatSchedule | None = None
        """Of the answers since the round of heartbeats began."""
        self.now = self._own

    def under(self, terms: hsc_pb2.LeaseTerms) -> HeartbeatSchedule:
        """Return the schedule under the terms of an answer; without terms, that of this host's configuration.

        Raises:
            SettingsError: the terms are too short for this host.
        """
        if not terms.HasField("claim_timeout"):
            return self._own
        claim, heartbeat = terms.claim_timeout, terms.heartbeat_timeout
        key = (claim.seconds, claim.nanos, heartbeat.seconds, heartbeat.nanos)
        schedule = self._by_terms.get(key)
        if schedule is None:
            schedule = schedule_under(self.timing, from_duration(claim), from_duration(heartbeat))
            if len(self._by_terms) == _MOST_KEPT:
                self._by_terms.clear()
            self._by_terms[key] = schedule
        return schedule

    def begin_round(self) -> None:
        """A round of heartbeats begins; answers from here on count."""
        self._shortest = None

    def note(self, schedule: HeartbeatSchedule) -> bool:
        """Note that an answer asks for this one, and follow it now if it is shorter; whether it is."""
        if self._shortest is None or schedule.process_deadline < self._shortest.process_deadline:
            self._shortest = schedule
        is_shorter = schedule.process_deadline < self.now.process_deadline
        if is_shorter:
            self.now = schedule
        return is_shorter

    def end_round(self) -> None:
        """Every heartbeat of the round was answered: follow the shortest, even if it is longer than before."""
        if self._shortest is not None:
            self.now = self._shortest
