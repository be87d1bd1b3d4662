"""What clients ask of the Frontend: schedule, cancel, change, redrive."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from duly_core.tasks import completions, dead_letters, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks import updates as changes
from duly_core.tasks.completions import Completed, Completion, CompletionVerdict
from duly_core.tasks.dead_letters import Answer, Verdict
from duly_core.tasks.lifecycle import FINAL, HELD, Status
from duly_core.tasks.task import Encoding, NewTask, Scheduled, Scheduling, TaskChange
from duly_core.tasks.updates import ChangeVerdict
from duly_wire.enums import Outcome, Priority
from tests.models import store_answers
from tests.models.machine_base import LAMBDAS, LIVES, PICKS, PRIORITIES, SECOND, SPANS, MachineBase
from tests.models.model import WAITING


class FrontendRules(MachineBase):
    """What clients ask of the Frontend: schedule, cancel, change, redrive."""

    @rule(
        asked=st.lists(
            st.tuples(
                st.sampled_from((*LAMBDAS, *LAMBDAS, "model.unknown")),
                st.sampled_from(PRIORITIES),
                SPANS,
                LIVES,
                st.sampled_from([None, None, None, "a", "b"]),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda each: (each[0], each[4] or object()),
        ),
        by_delay=st.booleans(),
    )
    def schedule_new(
        self, asked: list[tuple[str, Priority, timedelta, timedelta | None, str | None]], *, by_delay: bool
    ) -> None:
        now = self.model.now
        batch = [
            NewTask(
                self._bytes(),
                name,
                b"%d" % self._made,
                priority=priority,
                delay=ahead if by_delay else None,
                scheduled_at=None if by_delay else now + ahead - 5 * SECOND,
                expires_at=None if life is None else now + life,
                idempotency_key=key,
            )
            for name, priority, ahead, life, key in asked
        ]
        answers = self.world.run(schedule.schedule(self.world.store, batch))
        assert answers == [self._scheduled(task) for task in batch]

    @precondition(lambda self: self.model.tasks)
    @rule(number=PICKS, otherwise=st.booleans(), twice=st.booleans())
    def schedule_again(self, number: int, *, otherwise: bool, twice: bool) -> None:
        asked = self._pick(number).scheduled_as
        again = NewTask(
            asked.task_id,
            asked.lambda_name,
            b"other" if otherwise else asked.payload,
            priority=asked.priority,
        )
        batch = [again, again] if twice else [again]
        answers = self.world.run(schedule.schedule(self.world.store, batch))
        assert answers == [self._scheduled(task) for task in batch]

    def _scheduled(self, asked: NewTask) -> Scheduled:
        """Say what the store must answer, and write the task."""
        if asked.lambda_name not in self.model.lambdas:
            return Scheduled(Scheduling.UNKNOWN_LAMBDA, asked.task_id)
        holder = self.model.keys.get((asked.lambda_name, asked.idempotency_key or ""), asked.task_id)
        there = self.model.tasks.get(holder)
        if there is None:
            made = self.model.schedule(asked)
            return Scheduled(Scheduling.CREATED, asked.task_id, due_in=made.row.due_at - self.model.now)
        first = there.scheduled_as
        same = (first.payload, first.priority) == (asked.payload, asked.priority)
        return Scheduled(Scheduling.REPEATED if same else Scheduling.CONFLICT, holder)

    @precondition(lambda self: self.model.tasks)
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3), kill=st.booleans())
    def cancel(self, numbers: list[int], *, kill: bool) -> None:
        asked = {task.asked.task_id: task for task in map(self._pick, numbers)}
        call = tasks.cancel_tasks(self.world.store, [*asked, self._bytes()], kill=kill)
        answers = self.world.run(call).statuses
        expected = {}
        for task_id, task in asked.items():
            if task.row.status in WAITING:
                self.model.end(task, Status.CANCELLED)
                expected[task_id] = Status.CANCELLED
            elif task.row.status is Status.WAITING:
                self.model.end(task, Status.CANCELLED)
                task.row.last_token = task.hashes[-1][:16]
                expected[task_id] = Status.CANCELLED
            elif task.row.status in HELD:
                task.row.cancel_requested = True
                task.row.kill_requested |= kill
                expected[task_id] = task.row.status
        assert answers == expected

    @precondition(lambda self: self.model.tasks)
    @rule(
        numbers=st.lists(PICKS, min_size=1, max_size=3),
        priority=st.none() | st.sampled_from(PRIORITIES),
        delay=st.none() | st.sampled_from([timedelta(0), SECOND, 60 * SECOND]),
        otherwise=st.booleans(),
    )
    def change(
        self, numbers: list[int], priority: Priority | None, delay: timedelta | None, *, otherwise: bool
    ) -> None:
        payload = b"changed" if otherwise else None
        asked = {task.asked.task_id: task for task in map(self._pick, numbers)}
        batch = [
            TaskChange(task_id, payload, Encoding.JSON if otherwise else None, priority, delay=delay)
            for task_id in [*asked, self._bytes()]
        ]
        answers, _ = self.world.run(changes.update_pending(self.world.store, batch))
        expected = {}
        for each in batch[:-1]:
            task = asked[each.task_id]
            if task.row.status in WAITING:
                self.model.change(task, each)
                expected[each.task_id] = (ChangeVerdict.CHANGED, task.row.status)
                due_in = answers[each.task_id].due_in
                assert due_in == task.row.next_trigger_at - self.model.now
            else:
                expected[each.task_id] = (ChangeVerdict.NOT_PENDING, task.row.status)
        assert {task_id: (each.verdict, each.status) for task_id, each in answers.items()} == expected

    @precondition(lambda self: any(task.hashes for task in self.model.tasks.values()))
    @rule(
        asked=st.lists(
            st.tuples(
                PICKS,
                st.sampled_from(["last", "last", "last", "first", "foreign"]),
                st.sampled_from([Outcome.SUCCESS, Outcome.RETRIABLE_FAILURE, Outcome.FATAL_FAILURE]),
                st.none() | SPANS,
                st.sampled_from([b"done", b"done", b"other"]),
            ),
            min_size=1,
            max_size=3,
        )
    )
    def complete(self, asked: list[tuple[int, str, Outcome, timedelta | None, bytes]]) -> None:
        batch: dict[bytes, Completion] = {}
        for number, which, outcome, span, result in asked:
            task = self._pick(number, Status.WAITING)
            known = task.hashes and which != "foreign"
            succeeded = outcome is Outcome.SUCCESS
            completion = Completion(
                task.asked.task_id,
                task.hashes[-1 if which == "last" else 0] if known else 2 * self._bytes(),
                outcome,
                result=result if succeeded else None,
                failure_message="" if succeeded else "why",
                retry_after=span if outcome is Outcome.RETRIABLE_FAILURE else None,
            )
            batch.setdefault(task.asked.task_id, completion)
        unknown = Completion(self._bytes(), 2 * self._bytes(), Outcome.SUCCESS, b"done")
        answers = self.world.run(completions.complete(self.world.store, [*batch.values(), unknown])).answers
        expected = [store_answers.completed(self.model, each) for each in batch.values()]
        assert answers == [*expected, Completed(CompletionVerdict.NOT_CURRENT)]

    @precondition(lambda self: self.model.in_status(FINAL))
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3))
    def redrive(self, numbers: list[int]) -> None:
        picked = [self._pick(number, Status.FATAL_FAILURE) for number in numbers]
        asked = {task.asked.task_id: task for task in picked}
        answers = self.world.run(dead_letters.redrive(self.world.store, [*asked, self._bytes()]))
        expected = {}
        for task_id, task in asked.items():
            verdict = Verdict.NOT_DEAD
            if task.row.status is Status.FATAL_FAILURE:
                self.model.redrive(task)
                verdict = Verdict.REDRIVEN
            expected[task_id] = Answer(verdict, task.row.status)
        assert answers == expected
