"""Takes over the claim journals of Executors that died without a Controller: as a rule, when a whole worker did."""

from datetime import timedelta

from duly_controller.crash_reporter import CrashReporter
from duly_controller.events import log
from duly_controller.executor_registry import ExecutorRegistry
from duly_core.host.journal_folder import JournalFolder, TakenJournal
from duly_core.process.clock import seconds_since_boot

_LOOK_AGAIN = timedelta(seconds=1)


class Takeover:
    """Looks through the folder again and again: an Executor whose Controller was killed first drains, then ends."""

    def __init__(
        self,
        journals: JournalFolder,
        attached: ExecutorRegistry,
        crash_reporter: CrashReporter,
        lease: timedelta,
    ) -> None:
        """Args: `lease` is how long a journal of which nothing can be proved is kept: after that it is of no use."""
        self._journals = journals
        self._attached = attached
        self._crash_reporter = crash_reporter
        self._lease = lease.total_seconds()
        self._unproven: dict[str, float] = {}
        """Journals that are nobody's and of no use here, and since when (CLOCK_BOOTTIME)."""

    async def look(self) -> timedelta:
        """Take over whatever has lost its owner."""
        unproven: dict[str, float] = {}
        for name in self._journals.names():
            journal = self._journals.take(name)
            if journal is None or self._take_over(journal):
                continue
            since = unproven[name] = self._unproven.get(name, seconds_since_boot())
            if seconds_since_boot() - since > self._lease:
                log.warning("unusable claim journal removed (damaged, or of another host)", journal=name)
                journal.remove()
            else:
                journal.leave()
        self._unproven = unproven
        return _LOOK_AGAIN

    def _take_over(self, journal: TakenJournal) -> bool:
        """Whether it is dealt with; not if nobody can tell here whether its processes are dead."""
        left = journal.left
        if left is None:
            return False
        if self._attached.get(left.owner.executor_id) is not None:
            journal.leave()  # we are about to hear of its end
            return True
        host_restarted = left.owner.is_gone_with_its_boot()
        if not host_restarted and not left.owner.can_be_proved_dead():
            return False
        self._crash_reporter.take_over(journal, left, host_restarted=host_restarted)
        return True
