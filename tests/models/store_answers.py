"""What the store told after a call that may choose: held against what it may choose from, and taken over."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from duly_core.config.live_sections import LONGEST_LEASE
from duly_core.lambdas.names import QueueKey
from duly_core.results.store import Written
from duly_core.tasks.claims import Caller, Work
from duly_core.tasks.completions import Completed, Completion, CompletionVerdict
from duly_core.tasks.lifecycle import FINAL, HELD, READY, Status
from duly_core.tasks.polling import TimedOut
from duly_core.tasks.task import Applied, ClaimedTask, Proposal, Result, Token
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import TaskId
from tests.models.model import WAITING, Between, Model, ModelTask


def chose(chosen: Sequence[ModelTask], candidates: Sequence[ModelTask], most: int) -> None:
    """`most` of the candidates were taken, those with the oldest triggers; among equal ones the store is free."""
    assert len(chosen) == min(most, len(candidates)), f"{len(chosen)} of {len(candidates)}, room for {most}"
    assert all(any(task is each for each in candidates) for task in chosen), "took what is not due"
    triggers = sorted(task.row.next_trigger_at for task in chosen)
    assert triggers == [task.row.next_trigger_at for task in candidates[: len(chosen)]], (
        "not the oldest first"
    )


def silence(model: Model, answer: TimedOut, room: Mapping[QueueKey, int] | None, again_at: datetime) -> None:
    """Messages that are lost, holders that fell silent, tasks that expired; without a queue (None), all are due."""
    again = Status.RETRIABLE_FAILURE if room is None else Status.ENQUEUED
    sent = {each.task_id for each in answer.again}
    lost = [task for task in model.silent({Status.ENQUEUED}) if not model.expired(task.row)]
    silent = model.silent(HELD)
    for queue, size in (room or {}).items():
        candidates = [
            task
            for task in lost
            if (task.row.lambda_name, task.asked.priority) == (queue.lambda_name, queue.priority)
        ]
        chose([task for task in candidates if task.asked.task_id in sent], candidates, size)
    for task in lost:
        task.row.next_trigger_at = again_at
        if room is None:
            task.row.status = Status.NEW
    reclaimed, ended = set(), 0
    for task in model.in_status(WAITING):
        if model.expired(task.row):
            model.end(task, Status.FATAL_FAILURE, FailureKind.EXPIRED)
            ended += 1
    for task in model.silent({Status.WAITING}):
        model.fail_handed_over(task, FailureKind.COMPLETION_TIMEOUT, model.backoff(task))
        ended += task.row.status is Status.FATAL_FAILURE
    for task in silent:
        last = model.last_crash(task)
        model.charge(task, crash=True)
        if task.row.cancel_requested:
            model.end(task, Status.CANCELLED, remember=False)
        elif last:
            model.end(task, Status.FATAL_FAILURE, FailureKind.QUARANTINED, remember=False)
        else:
            task.row.failure_kind, task.row.failed_at = FailureKind.CRASH, model.now
            model.let_go(task, again, again_at, remember=False)
            reclaimed.add(task.asked.task_id)
            continue
        ended += 1
    may_be_sent = set() if room is None else {task.asked.task_id for task in lost}
    assert sent - may_be_sent == reclaimed, "sent what was not silent, or not what was"
    assert (answer.reclaimed, answer.ended) == (len(reclaimed), ended)


def claimed(
    model: Model,
    proposals: Sequence[Proposal],
    answers: Sequence[ClaimedTask | None],
    before: Mapping[TaskId, Token | None],
    lease: timedelta,
) -> None:
    """Of the proposals for one task exactly one is granted, if it may be claimed at all."""
    for task_id in {proposal.task_id for proposal in proposals}:
        task = model.tasks[task_id]
        rivals = [
            (proposal, answer)
            for proposal, answer in zip(proposals, answers, strict=True)
            if proposal.task_id == task_id
        ]
        fitting = [
            proposal.token
            for proposal, _ in rivals
            if proposal.lambda_name == task.row.lambda_name and proposal.token != task.row.last_token
        ]
        free = task.row.status is Status.ENQUEUED and not model.expired(task.row)
        granted = [proposal.token for proposal, answer in rivals if answer is not None]
        if free and fitting:
            assert len(granted) == 1, f"granted to {len(granted)}"
            assert granted[0] in fitting, "granted to another lambda"
            model.claim(task, granted[0], "host", lease)
        else:
            held = [proposal.token for proposal, _ in rivals if proposal.token == before[task_id]]
            assert granted == held, "granted what is not free"
            if held:  # its lease starts again
                renewed = max(task.row.next_trigger_at, model.now + lease)
                task.row.next_trigger_at = min(renewed, model.now + LONGEST_LEASE)
        for _, answer in rivals:
            if answer is not None:
                _describes(answer, task, model)


def work(
    model: Model,
    answer: Work,
    queues: Mapping[QueueKey, int],
    callers: Sequence[Caller],
    most: int,
    lease: timedelta,
) -> None:
    """What is due was claimed, queue by queue, and went to the callers in turn; what is ahead was told."""
    assert (answer.ahead is None) == (len(answer.tasks) == most), "told to have found all there is, or not to"
    if answer.ahead is not None:
        assert answer.ahead == {queue: due_in for queue in queues if (due_in := _ahead(model, queue))}
    tokens = [
        callers[place % len(callers)].token_prefix + (place // len(callers)).to_bytes(2, "big")
        for place in range(len(answer.tasks))
    ]
    by_token = {task.token: task for task in answer.tasks}
    assert by_token.keys() == set(tokens), "a token is not a caller's prefix and a number"
    left = [model.tasks[by_token[token].task_id] for token in tokens]
    places = {task.asked.task_id: place for place, task in enumerate(left)}
    for queue, size in queues.items():
        candidates = model.due(queue.lambda_name, queue.priority)
        room = min(size, most - (len(places) - len(left)))
        chosen, left = left[: min(room, len(candidates))], left[min(room, len(candidates)) :]
        chose(chosen, candidates, room)
    assert left == [], "claimed more than was asked for"
    for token, place in zip(tokens, range(len(tokens)), strict=True):
        claimed_task = by_token[token]
        task = model.tasks[claimed_task.task_id]
        model.claim(task, token, callers[place % len(callers)].holder, lease)
        _describes(claimed_task, task, model)


def _ahead(model: Model, queue: QueueKey) -> timedelta | None:
    """How long until a queue has something to run that it has not now."""
    instants = [
        task.row.next_trigger_at
        for task in model.in_status(READY)
        if (task.row.lambda_name, task.asked.priority) == (queue.lambda_name, queue.priority)
        and not model.triggered(task.row)
        and not model.expired(task.row)
    ]
    return min(instants) - model.now if instants else None


def claimed_again(
    model: Model, answer: Sequence[ClaimedTask], lost: Sequence[ModelTask], caller: Caller, lease: timedelta
) -> None:
    """The claims whose reply was lost have other tokens from here on, and a new lease; they are the same claims."""
    assert len(answer) == len(lost), "claimed anew what was not lost, or not all that was"
    by_token = {task.token: task for task in answer}
    for place, task in enumerate(lost):  # oldest id first
        token = caller.token_prefix + place.to_bytes(2, "big")
        assert by_token[token].task_id == task.asked.task_id
        task.row.token = task.tokens[-1] = token
        task.row.next_trigger_at = model.now + lease
        _describes(by_token[token], task, model)


def _describes(answer: ClaimedTask, task: ModelTask, model: Model) -> None:
    row = task.row
    assert isinstance(row.due_at, datetime)
    assert (answer.fence, answer.failures, answer.crashes) == (row.fence, row.failures, row.crashes)
    assert (answer.payload, answer.lambda_name) == (task.asked.payload, row.lambda_name)
    assert answer.due_at_us == round(row.due_at.timestamp() * 1_000_000)
    assert answer.max_runtime == model.lambdas[row.lambda_name].max_runtime


def verdict(task: ModelTask, token: Token, written: set[Token]) -> Applied:
    """What a write under this token must be answered, after the call."""
    if token in written:
        return Applied.APPLIED
    return Applied.ALREADY_APPLIED if token == task.row.last_token else Applied.LOST


def results(
    model: Model,
    given: Sequence[Result],
    hold_back: Mapping[str, timedelta],
    answer: Written,
    holds: Callable[[ModelTask, Token], bool],
) -> None:
    """Each result under the current token is written; the others change nothing."""
    written: set[Token] = set()
    ahead: list[datetime | Between] = []
    retried: Counter[str] = Counter()
    for result in given:
        task = model.tasks[result.task_id]
        if holds(task, result.token):
            again = _write(model, task, result, hold_back)
            written.add(result.token)
            if again is not None:
                ahead.append(again)
                retried[task.row.lambda_name] += result.outcome is not Outcome.SNOOZED
    assert answer.verdicts == [verdict(model.tasks[each.task_id], each.token, written) for each in given]
    assert +answer.retried == +retried
    if not ahead:
        assert answer.due_in is None
        return
    earliest = min(each.earliest if isinstance(each, Between) else each for each in ahead)
    latest = min(each.latest if isinstance(each, Between) else each for each in ahead)
    assert answer.due_in is not None
    assert earliest <= model.now + answer.due_in <= latest, (
        "the notification is not when the first of them runs again"
    )


def _write(
    model: Model, task: ModelTask, result: Result, hold_back: Mapping[str, timedelta]
) -> datetime | Between | None:
    """Apply one result; when the task runs again, as far as the caller is told."""
    row = task.row
    if result.outcome is Outcome.SNOOZED:
        assert result.retry_after is not None
        row.due_at = again = model.now + result.retry_after
        model.let_go(task, Status.NEW, again)
        return again
    row.started_at = result.started_at
    if result.outcome is Outcome.COMPLETE_LATER:
        assert result.complete_within is not None
        model.hand_over(task, result.completion_hash, result.complete_within)
        return None
    if result.outcome is Outcome.SUCCESS:
        row.result = result.result
        model.end(task, Status.SUCCESS)
        return None
    if result.outcome is Outcome.CANCELLED:
        model.end(task, Status.CANCELLED)
        return None
    crashed = result.outcome is Outcome.CRASHED
    limit = model.lambdas[row.lambda_name].max_attempts
    last = model.last_crash(task) if crashed else row.failures + 1 >= limit
    wait = _wait(model, task, result, hold_back)
    model.charge(task, crash=crashed)
    if result.outcome is Outcome.FATAL_FAILURE:
        model.end(task, Status.FATAL_FAILURE, result.failure_kind)
        return None
    if last:
        kind = FailureKind.QUARANTINED if crashed else FailureKind.ATTEMPTS_EXHAUSTED
        model.end(task, Status.FATAL_FAILURE, kind)
        return None
    row.failure_kind, row.failed_at = result.failure_kind, model.now
    row.due_at = wait
    model.let_go(task, Status.RETRIABLE_FAILURE, wait)
    return wait if row.status is Status.RETRIABLE_FAILURE else None


def _wait(model: Model, task: ModelTask, result: Result, hold_back: Mapping[str, timedelta]) -> Between:
    if result.retry_after is None:
        bounds = model.backoff(task)
    else:
        bounds = Between(model.now + result.retry_after, model.now + result.retry_after)
    least = hold_back.get(task.row.lambda_name, timedelta(0))
    return Between(max(bounds.earliest, model.now + least), max(bounds.latest, model.now + least * 1.5))


def completed(model: Model, asked: Completion) -> Completed:
    """What a completion must be answered; one with the token of a task that waits for it is written."""
    task = model.tasks[asked.task_id]
    row = task.row
    if row.status is Status.WAITING and task.hashes[-1] == asked.token_hash:
        if asked.outcome is Outcome.SUCCESS:
            row.last_token, row.result, task.is_completed = asked.token_hash[:16], asked.result, True
            model.end(task, Status.SUCCESS)
        else:
            wait: datetime | Between = model.backoff(task)
            if asked.retry_after is not None:
                wait = model.now + asked.retry_after
            is_fatal = asked.outcome is Outcome.FATAL_FAILURE
            model.fail_handed_over(task, FailureKind.CALLBACK, wait, is_fatal=is_fatal)
        return Completed(CompletionVerdict.COMPLETED, row.status)
    if row.last_token != asked.token_hash[:16]:
        return Completed(CompletionVerdict.TOO_EARLY if row.status in HELD else CompletionVerdict.NOT_CURRENT)
    is_late = asked.token_hash in task.late_hashes
    if row.status not in FINAL:
        if asked.outcome is Outcome.RETRIABLE_FAILURE and not is_late:
            return Completed(CompletionVerdict.COMPLETED, row.status)
        return Completed(CompletionVerdict.NOT_CURRENT)
    is_same = (
        row.status is Status.SUCCESS and row.result == asked.result
        if asked.outcome is Outcome.SUCCESS
        else row.status is Status.FATAL_FAILURE and not is_late
    )
    return Completed(CompletionVerdict.COMPLETED if is_same else CompletionVerdict.ENDED, row.status)
