"""What hosts ask of the HSC: claims, heartbeats, results and releases."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from duly_core.config.live_sections import LONGEST_LEASE
from duly_core.results import store as results
from duly_core.tasks import claims
from duly_core.tasks.lifecycle import HELD, Status
from duly_core.tasks.task import HeartbeatAnswer, Proposal, ReleasedClaim, Result, TaskHeartbeat, Token
from duly_wire.enums import FailureKind, Outcome
from tests.models import store_answers
from tests.models.machine_base import (
    CLAIM_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    LAMBDAS,
    OWNERSHIPS,
    PICKS,
    SECOND,
    SPANS,
    MachineBase,
)
from tests.models.model import ModelTask

OUTCOMES = [each for each in Outcome if each is not Outcome.WAIT_FOR_EVENT]


class HscRules(MachineBase):
    """What hosts ask of the HSC: claims, heartbeats, results and releases."""

    @precondition(lambda self: self.model.in_status({Status.ENQUEUED, *HELD}))
    @rule(
        asked=st.lists(
            st.tuples(PICKS, st.sampled_from(["new", "new", "new", "current", "last"])),
            min_size=1,
            max_size=4,
        ),
        wrong_lambda=st.integers(0, 9),
    )
    def claim(self, asked: list[tuple[int, str]], wrong_lambda: int) -> None:
        proposals = []
        for number, whose in asked:
            task = self._pick(number, Status.ENQUEUED)
            other = LAMBDAS[task.asked.lambda_name == LAMBDAS[0]]
            name = other if wrong_lambda == 0 else task.asked.lambda_name
            proposals.append(Proposal(task.asked.task_id, self._token(task, whose), name))
        proposals = list({proposal.token: proposal for proposal in proposals}.values())
        before = {task_id: task.row.token for task_id, task in self.model.tasks.items()}
        call = claims.claim(self.world.store, [(each, "host") for each in proposals], CLAIM_TIMEOUT)
        answers = self.world.run(call)
        store_answers.claimed(self.model, proposals, answers, before, CLAIM_TIMEOUT)

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(
        asked=st.lists(
            st.tuples(
                PICKS, OWNERSHIPS, st.sampled_from([None, 0.0, 0.25, 1.0]), st.sampled_from([None, "far"])
            ),
            min_size=1,
            max_size=4,
        )
    )
    def heartbeat(self, asked: list[tuple[int, str, float | None, str | None]]) -> None:
        beats = {}
        for number, whose, progress, note in asked:
            task = self._pick(number, *HELD)
            token = self._token(task, whose)
            beats.setdefault(token, TaskHeartbeat(task.asked.task_id, token, progress, note))
        batch = list(beats.values())
        expected = []
        for beat in batch:
            task = self.model.tasks[beat.task_id]
            if not self._holds(task, beat.token):
                expected.append(HeartbeatAnswer.LOST)
                continue
            row = task.row
            row.status = Status.PROCESSING
            lease = max(row.next_trigger_at, self.model.now + HEARTBEAT_TIMEOUT)
            row.next_trigger_at = min(lease, self.model.now + LONGEST_LEASE)  # the clock may have gone back
            row.progress = row.progress if beat.progress is None else beat.progress
            row.note = row.note if beat.note is None else beat.note
            asked_to = (row.cancel_requested, row.kill_requested)
            expected.append(
                {
                    (False, False): HeartbeatAnswer.KEPT,
                    (True, False): HeartbeatAnswer.CANCEL_REQUESTED,
                    (True, True): HeartbeatAnswer.KILL_REQUESTED,
                }[asked_to]
            )
        assert self.world.run(claims.heartbeat(self.world.store, batch, HEARTBEAT_TIMEOUT)) == expected

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(
        asked=st.lists(
            st.tuples(PICKS, OWNERSHIPS, st.sampled_from(OUTCOMES), SPANS, st.booleans()),
            min_size=1,
            max_size=4,
        ),
        repeated=st.booleans(),
        hold_back=st.sampled_from([{}, {}, {LAMBDAS[0]: 25 * SECOND}]),
    )
    def set_results(
        self,
        asked: list[tuple[int, str, Outcome, timedelta, bool]],
        hold_back: dict[str, timedelta],
        *,
        repeated: bool,
    ) -> None:
        batch = {}
        for number, whose, outcome, span, says_when in asked:
            task = self._pick(number, *HELD)
            token = self._token(task, whose)
            batch.setdefault(token, self._result(task, token, outcome, span if says_when else None))
        given = [*batch.values()] + ([*batch.values()][:1] if repeated else [])
        written = self.world.run(results.set_results(self.world.store, given, hold_back))
        store_answers.results(self.model, given, hold_back, written, self._holds)

    def _result(self, task: ModelTask, token: Token, outcome: Outcome, span: timedelta | None) -> Result:
        failed = outcome in (Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE, Outcome.CRASHED)
        is_handed_over = outcome is Outcome.COMPLETE_LATER
        kind = FailureKind.CRASH if outcome is Outcome.CRASHED else FailureKind.CALLBACK
        return Result(
            task.asked.task_id,
            token,
            outcome,
            result=b"done" if outcome is Outcome.SUCCESS else None,
            failure_kind=kind if failed else None,
            failure_message="why" if failed else "",
            retry_after=(span or SECOND) if outcome is Outcome.SNOOZED else span,
            started_at=self.model.now - SECOND,
            completion_hash=2 * self._bytes() if is_handed_over else b"",
            complete_within=max(span or SECOND, SECOND) if is_handed_over else None,
        )

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(asked=st.lists(st.tuples(PICKS, OWNERSHIPS), min_size=1, max_size=3))
    def release(self, asked: list[tuple[int, str]]) -> None:
        pairs = {}
        for number, whose in asked:
            task = self._pick(number, *HELD)
            pairs.setdefault(self._token(task, whose), task)
        written = {token for token, task in pairs.items() if self._holds(task, token)}
        for token in written:
            self.model.let_go(pairs[token], Status.NEW, self.model.now)
        verdicts, ahead = self.world.run(
            claims.release(
                self.world.store, [ReleasedClaim(task.asked.task_id, token) for token, task in pairs.items()]
            )
        )
        assert verdicts == [store_answers.verdict(task, token, written) for token, task in pairs.items()]
        assert ahead == (timedelta(0) if written else None)
