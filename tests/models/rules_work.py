"""What hosts ask of the HSC where no queue is beside the store: claim what is due, and find a lost reply again."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from duly_core.tasks import claims, polling
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import HELD, LIVE, READY, Status
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, ReleasedClaim
from tests.models import store_answers
from tests.models.machine_base import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LIMIT, PICKS, QUEUES, ROOMS, MachineBase
from tests.models.model import ModelTask

HOLDERS = ("host-a", "host-b")


class WorkRules(MachineBase):
    """Claims of what is due, by callers in turn; and what becomes of tasks when there is no queue any more."""

    @precondition(lambda self: self.model.in_status(READY))
    @rule(
        sizes=ROOMS,
        turned=st.booleans(),
        callers=st.integers(1, 2),
        most=st.sampled_from([LIMIT, LIMIT, 1, 2, 3]),
    )
    def claim_work(self, sizes: list[int], callers: int, most: int, *, turned: bool) -> None:
        asked = list(zip(QUEUES, sizes, strict=True))
        queues = dict(reversed(asked) if turned else asked)
        picks = [Pick(queue, size, 0) for queue, size in queues.items()]
        who = [Caller(HOLDERS[number], self._prefix()) for number in range(callers)]
        work = self.world.run(claims.claim_work(self.world.store, picks, who, most, CLAIM_TIMEOUT))
        store_answers.work(self.model, work, queues, who, most, CLAIM_TIMEOUT)

    def _prefix(self) -> bytes:
        prefix = self._bytes()[:TOKEN_PREFIX_BYTES]
        self.prefixes.append(prefix)
        return prefix

    def _under(self, numbers: list[int]) -> tuple[list[bytes], list[ModelTask]]:
        """Prefixes, one of them unknown, and what is held under them."""
        chosen = [self.prefixes[number % len(self.prefixes)] for number in numbers if self.prefixes]
        prefixes = [*chosen, self._bytes()[:TOKEN_PREFIX_BYTES]]
        held = [
            task
            for task in self.model.in_status(HELD)
            if task.row.token is not None and task.row.token[:TOKEN_PREFIX_BYTES] in prefixes
        ]
        return prefixes, held

    @precondition(lambda self: self.model.in_status({Status.CLAIMED}))
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=2), holder=st.sampled_from(HOLDERS))
    def claim_again(self, numbers: list[int], holder: str) -> None:
        """The reply to a claim was lost."""
        lost, held = self._under(numbers)
        found = [task for task in held if (task.row.status, task.row.holder) == (Status.CLAIMED, holder)]
        caller = Caller(holder, self._prefix())
        answer = self.world.run(claims.claim_again(self.world.store, caller, lost, CLAIM_TIMEOUT))
        store_answers.claimed_again(self.model, answer, found, caller, CLAIM_TIMEOUT)

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=2))
    def release_prefixes(self, numbers: list[int]) -> None:
        """A caller is gone, and what was claimed for it is handed back."""
        prefixes, held = self._under(numbers)
        found = self.world.run(claims.claims_under(self.world.store, prefixes))
        assert sorted(found) == sorted((task.asked.task_id, task.row.token) for task in held)
        given_up = [ReleasedClaim(task_id, token) for task_id, token in found]
        verdicts, ahead = self.world.run(claims.release(self.world.store, given_up))
        written = {token for _, token in found}
        tasks = [self.model.tasks[task_id] for task_id, _ in found]
        for task in tasks:
            self.model.let_go(task, Status.NEW, self.model.now)
        assert verdicts == [
            store_answers.verdict(task, token, written) for task, (_, token) in zip(tasks, found, strict=True)
        ]
        assert ahead == (timedelta(0) if written else None)

    @precondition(lambda self: self.model.in_status(LIVE))
    @rule()
    def end_silence_without_a_queue(self) -> None:
        """Holders fell silent; and what was once sent to a queue is due again."""
        silence = self.world.run(polling.handle_timeouts(self.world.store, None, ENQUEUE_TIMEOUT, LIMIT))
        store_answers.silence(self.model, silence, None, self.model.now)
