"""The duties of a worker, each with the play that shows whether it keeps it. docs/workers.md explains them."""

import json
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

from duly_local.conformance.server import Fault
from duly_local.conformance.stage import (
    BYTES,
    CONTEXT,
    CRASH,
    ECHO,
    END,
    LAMBDAS,
    BrokenError,
    NotTestedError,
    Stage,
)
from duly_wire.v1 import hsc_pb2, task_pb2

Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Duty:
    """One thing that a worker must do."""

    name: str
    text: str
    play: Play
    at_the_end: bool = False
    """Whether it is judged by all that came before."""


DUTIES: list[Duty] = []


def _duty(name: str, *, at_the_end: bool = False) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        DUTIES.append(Duty(name, (play.__doc__ or "").strip().split("\n")[0], play, at_the_end))
        return play

    return add


def _expect(holds: object, otherwise: str) -> None:
    if not holds:
        raise BrokenError(otherwise)


# ---- to be there ---------------------------------------------------------------------------------------


@_duty("declares-lambdas")
async def _declares(stage: Stage) -> None:
    """It declares its lambdas (RegisterLambdas) when it starts."""
    calls = await stage.until(
        lambda: stage.duly.seen("RegisterLambdas", stage.started_at), "RegisterLambdas was not called"
    )
    names = {each.name for call in calls for each in call.request.lambdas}
    missing = [name for name in LAMBDAS if name not in names]
    _expect(not missing, f"not declared: {', '.join(missing)}")


@_duty("reports-host")
async def _reports(stage: Stage) -> None:
    """It reports its host (ReportHost), again within the interval that it names."""
    await stage.until(
        lambda: stage.duly.seen("ReportHost"), "ReportHost was not called: `duly hosts` stays empty"
    )
    request = stage.duly.seen("ReportHost")[-1].request
    _expect(request.host_id and request.name, "the report has no host_id, or no name")
    interval = request.interval.ToTimedelta().total_seconds()
    _expect(1 <= interval <= 600, f"its interval is {interval:g} s: 1 s to 10 min are allowed")
    await stage.until(
        lambda: any(call.request.executors for call in stage.duly.seen("ReportHost")),
        "no report names an Executor with its slots",
    )


@_duty("asks-politely")
async def _asks(stage: Stage) -> None:
    """Each ClaimWork has a new prefix of 14 bytes, lambdas, and a timeout of at most 60 s."""
    since = time.monotonic()
    for _ in range(2):
        await stage.result(await stage.schedule(ECHO, 1))
    await stage.until(lambda: len(stage.duly.seen("ClaimWork begun", since)) > 1, "it does not ask again")
    seen: dict[bytes, Any] = {}
    for call in stage.duly.seen("ClaimWork begun"):
        request = call.request
        _expect(len(request.token_prefix) == 14, "a token_prefix has not 14 bytes")
        _expect(request.max_tasks >= 1 and request.lambdas, "it asks for no tasks, or of no lambdas")
        _expect(request.timeout.ToTimedelta() <= timedelta(seconds=60), "it asks to wait for more than 60 s")
        _expect(request.holder, "holder is empty: nobody can tell who has a claim")
        before = seen.setdefault(request.token_prefix, request)
        _expect(before == request, "a token_prefix is used for two requests")


@_duty("backs-off")
async def _backs_off(stage: Stage) -> None:
    """While calls for work fail, it asks again no more than five times a second."""
    stage.faults.away.add("ClaimWork")
    await stage.within(lambda: False, 1)
    since = time.monotonic()
    await stage.within(lambda: False, 3)
    asked = len(stage.duly.seen("ClaimWork begun", since))
    stage.faults.away.clear()
    _expect(asked <= 15, f"it asked {asked} times in 3 s while each call failed")
    await stage.result(await stage.schedule(ECHO, 1))


# ---- runs and their ends -------------------------------------------------------------------------------


@_duty("runs-tasks")
async def _runs(stage: Stage) -> None:
    """It runs a task and reports SUCCESS with the callback's result."""
    for name, value, encoding in (
        (ECHO, {"a": [1, "é"]}, task_pb2.ENCODING_JSON),
        (BYTES, b"\x00\xff", task_pb2.ENCODING_RAW),
    ):
        result = await stage.result(await stage.schedule(name, value))
        _expect(result.outcome == hsc_pb2.OUTCOME_SUCCESS, f"{name} did not succeed")
        got = result.result if encoding == task_pb2.ENCODING_RAW else json.loads(result.result)
        _expect(
            got == value and result.result_encoding == encoding,
            f"{'JSON' if encoding == task_pb2.ENCODING_JSON else 'a payload of bytes'} came back as something else",
        )


@_duty("reports-outcomes")
async def _outcomes(stage: Stage) -> None:
    """It tells failures that may be tried again, final ones and snoozes apart."""
    for name, outcome in (
        ("retry", hsc_pb2.OUTCOME_RETRIABLE_FAILURE),
        ("fatal", hsc_pb2.OUTCOME_FATAL_FAILURE),
        ("snooze", hsc_pb2.OUTCOME_SNOOZED),
    ):
        result = await stage.result(await stage.schedule(END, {"outcome": name}))
        _expect(result.outcome == outcome, f"{name!r} was reported as {hsc_pb2.Outcome.Name(result.outcome)}")
        if name == "snooze":
            _expect(
                result.retry_after.ToTimedelta() == timedelta(seconds=5), "a snooze has no retry_after of 5 s"
            )
        else:
            _expect(
                result.failure_kind and "as asked" in result.failure_message,
                f"{name!r} has no kind or message",
            )


@_duty("knows-its-run")
async def _context(stage: Stage) -> None:
    """A callback knows its attempt, its fence, and what the attempt before kept."""
    task = await stage.schedule(CONTEXT, crashes=1, fence=6, checkpoint=b'{"at":3}')
    result = await stage.result(task)
    wanted = {"attempt": 2, "fence": 7, "checkpoint": {"at": 3}}
    _expect(json.loads(result.result or b"null") == wanted, f"conformance.context did not return {wanted}")


# ---- leases --------------------------------------------------------------------------------------------


@_duty("sends-heartbeats")
async def _beats(stage: Stage) -> None:
    """While a task runs, it renews the lease at least twice in its length, with progress and checkpoint."""
    task, ticks = await stage.running()
    began = time.monotonic()
    await stage.within(lambda: task.silent, 1.5 * stage.lease)
    _expect(not task.silent, "the lease ran out while the task ran")
    times = [began, *(at for at, _ in task.beats), time.monotonic()]
    gap = max(later - before for before, later in pairwise(times))
    _expect(gap <= stage.lease / 2, f"{gap:.1f} s without a heartbeat, of a lease of {stage.lease:g} s")
    items = [item for _, item in task.beats]
    _expect(any(item.progress == 0.5 for item in items), "no heartbeat had the callback's progress")
    _expect(any(item.checkpoint for item in items), "no heartbeat had the callback's checkpoint")
    ticks.let_end()
    await stage.result(task)


@_duty("ends-before-its-lease")
async def _ends_itself(stage: Stage) -> None:
    """If no heartbeat is acknowledged, the callback is dead before the lease ends, and before another run."""
    task, ticks = await stage.running(stubborn=True)
    await stage.until(lambda: task.beats, "no heartbeat came", stage.lease)
    for method in ("Heartbeat", "SetResults", "Release"):
        stage.faults.away.add(method)
    until, fence = task.lease_until, task.fence
    await stage.within(lambda: False, until - time.monotonic() - 0.1)
    seen = sum(each == fence for _, each in ticks.lines())
    await stage.within(lambda: False, 1.5)
    _expect(
        sum(each == fence for _, each in ticks.lines()) == seen,
        "the callback still ran when its lease was over",
    )


@_duty("obeys-lost-claims")
async def _lost(stage: Stage) -> None:
    """After LOST_CLAIM it ends the callback at once."""
    task, ticks = await stage.running(stubborn=True)
    task.last_token, task.token = task.token, b""
    told = await stage.until(
        lambda: _beat_of(stage, task, time.monotonic() - 60), "no heartbeat came", stage.lease
    )
    _expect(told, "no heartbeat came")
    await stage.within(lambda: False, stage.lease / 2 + 2)
    _expect(await stage.still(ticks, 1), "the callback ran on after LOST_CLAIM")


def _beat_of(stage: Stage, task: Any, since: float) -> bool:
    return any(
        item.claim.task_id == task.task_id
        for call in stage.duly.seen("Heartbeat", since)
        for item in call.request.items
    )


@_duty("starts-in-time")
async def _late(stage: Stage) -> None:
    """It starts no callback after the lease of its claim is over: the lease counts from the request, not from the answer."""
    stage.faults.delay["ClaimWork"] = stage.lease + 1
    task, ticks = await stage.tick()
    await stage.until(lambda: task.tokens, "it does not ask for work")
    first, claimed_at = task.fence, time.monotonic()
    answered = await stage.within(
        lambda: any(each.answered_at > claimed_at + stage.lease for each in stage.duly.seen("ClaimWork")),
        stage.lease + 3,
    )
    stage.faults.delay.clear()
    if not answered:
        raise NotTestedError("it gave the call up before the late answer came")
    await stage.within(lambda: False, 1.5)
    _expect(
        all(fence != first for _, fence in ticks.lines()),
        "a callback started under a claim whose lease was over",
    )


# ---- lost answers --------------------------------------------------------------------------------------


@_duty("recovers-lost-claims")
async def _lost_reply(stage: Stage) -> None:
    """What was claimed by a request without an answer is asked for again, or released, well before its lease ends."""
    stage.faults.next["ClaimWork"] = deque(["lose"] * 1)
    task = await stage.schedule(ECHO, 1)
    await stage.until(lambda: task.tokens, "it does not ask for work")
    result = await stage.within(lambda: task.applied, stage.lease)
    _expect(
        result and not task.silent, "the task waited for the end of its lease: send lost_prefixes, or Release"
    )


@_duty("repeats-results")
async def _repeats(stage: Stage) -> None:
    """A result without an answer is sent again, unchanged, until the answer is definite."""
    await _repeated(stage, "refuse", "the result was not sent again after it was not written")
    await _repeated(stage, "lose", "the result was not sent again after its answer was lost")


async def _repeated(stage: Stage, fault: Fault, otherwise: str) -> None:
    stage.faults.next["SetResults"] = deque([fault, fault])
    task = await stage.schedule(ECHO, fault)
    sent = 1 if fault == "refuse" else 3
    await stage.until(lambda: task.applied and len(task.sent) >= sent, otherwise, stage.lease)
    _expect(task.fence == 1, "the task ran again")
    _expect(all(each == task.sent[0] for each in task.sent), "the repeated result differs from the first")


# ---- what people ask for -------------------------------------------------------------------------------


@_duty("passes-cancels-on")
async def _cancel(stage: Stage) -> None:
    """A requested cancel reaches the callback; one that obeys ends as CANCELLED."""
    task, _ = await stage.running()
    task.verdict = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
    result = await stage.result(task)
    _expect(
        result.outcome == hsc_pb2.OUTCOME_CANCELLED,
        f"it was reported as {hsc_pb2.Outcome.Name(result.outcome)}",
    )


@_duty("carries-kills-out")
async def _kill(stage: Stage) -> None:
    """A task of kill_task_ids is ended, whether its callback obeys or not."""
    task, ticks = await stage.running(stubborn=True)
    task.kill = True
    result = await stage.result(task)
    _expect(
        result.outcome == hsc_pb2.OUTCOME_CANCELLED,
        f"it was reported as {hsc_pb2.Outcome.Name(result.outcome)}",
    )
    _expect(await stage.still(ticks, 1), "the callback runs on after its end was reported")


@_duty("enforces-max-runtime")
async def _max_runtime(stage: Stage) -> None:
    """A callback that runs longer than max_runtime is ended, as a failure of kind MAX_RUNTIME."""
    task, ticks = await stage.tick(stubborn=True, max_runtime=timedelta(seconds=1))
    result = await stage.result(task)
    _expect(
        result.outcome == hsc_pb2.OUTCOME_RETRIABLE_FAILURE
        and result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME,
        f"it was reported as {hsc_pb2.Outcome.Name(result.outcome)}, {task_pb2.FailureKind.Name(result.failure_kind)}",
    )
    _expect(await stage.still(ticks, 1), "the callback runs on after its end was reported")


@_duty("keeps-gated-runs")
async def _gated(stage: Stage) -> None:
    """A gate that comes while a callback runs does not stop it."""
    task, ticks = await stage.running()
    task.verdict = hsc_pb2.HEARTBEAT_VERDICT_GATED
    await stage.until(lambda: task.beats, "no heartbeat came", stage.lease)
    ticks.let_end()
    result = await stage.result(task)
    _expect(result.outcome == hsc_pb2.OUTCOME_SUCCESS and task.fence == 1, "a run was stopped for a gate")


# ---- crashes -------------------------------------------------------------------------------------------


@_duty("counts-crashes")
async def _crashes(stage: Stage) -> None:
    """A callback whose process dies is a crash of its task, and of no other."""
    other, ticks = await stage.running()
    task = await stage.schedule(CRASH)
    await stage.within(lambda: task.applied or task.silent, stage.lease + stage.patience)
    task.due = False
    _expect(task.applied or task.silent, "nothing came of a task whose process died")
    if task.applied:
        outcome = task.applied[-1].outcome
        _expect(
            outcome == hsc_pb2.OUTCOME_CRASHED, f"a crash was reported as {hsc_pb2.Outcome.Name(outcome)}"
        )
    charged = [each for each in other.sent if each.outcome != hsc_pb2.OUTCOME_SUCCESS]
    _expect(not charged, "the crash of one task was charged to another")
    ticks.let_end()


@_duty("runs-suspects-alone")
async def _alone(stage: Stage) -> None:
    """A task that crashed before runs in a process in which nothing else runs."""
    _, busy = await stage.running()
    suspect, ticks = await stage.running(crashes=1)
    _, beside = await stage.tick()
    await stage.within(beside.lines, 3)
    pids = {pid for pid, _ in ticks.lines()}
    others = {pid for pid, _ in busy.lines()} | {pid for pid, _ in beside.lines()}
    _expect(suspect.held, "the suspect did not run on")
    _expect(not pids & others, "a task that crashed before shares its process with another")


# ---- the end -------------------------------------------------------------------------------------------


@_duty("drains")
async def _drains(stage: Stage) -> None:
    """After SIGTERM it takes no more, lets what runs end or releases it, and ends with nothing held."""
    if not stage.starts_it:
        raise NotTestedError("the suite did not start the worker: name its command")
    task, ticks = await stage.running()
    stage.signal(signal.SIGTERM)
    stops_within = max(
        2, stage.lease / 2
    )  # on a busy machine; a claim that is left behind must be found before its lease ends
    await stage.within(lambda: False, stops_within)
    since = time.monotonic()
    ticks.let_end()
    late = await stage.schedule(ECHO, 1)
    await stage.until(lambda: not stage.lives, "it does not end after SIGTERM", 3 * stage.patience)
    # a call that was under way may still be answered with a task, which it then hands back
    was_handed_back = late.released == len(late.tokens)
    _expect(was_handed_back, f"it took a task {stops_within:g} s after SIGTERM, and did not release it")
    _expect(not task.held, "it ended and left a claim behind: neither result nor Release")
    calls = stage.duly.seen("ReportHost")
    _expect(
        not calls
        or any(
            each.request.draining or each.request.stopped for each in calls if each.at >= since - stops_within
        ),
        "it reported no host as draining or stopped",
    )


@_duty("uses-its-tokens-only", at_the_end=True)
async def _tokens(stage: Stage) -> None:
    """Every heartbeat, result and release had the token of a claim that it was given."""
    if not any(task.tokens for task in stage.tasks.all.values()):
        raise NotTestedError("no task was claimed")
    bad = stage.tasks.unknown_tokens
    _expect(not bad, f"{len(bad)} writes under tokens that no claim had ({', '.join(sorted(set(bad)))})")


@_duty("never-twice-at-a-time", at_the_end=True)
async def _never_twice(stage: Stage) -> None:
    """No run of a task went on after a newer run of it had begun."""
    if not any(task.fence > 1 for task, _ in stage.ticks):
        raise NotTestedError("no task of conformance.tick ran twice")
    for _, ticks in stage.ticks:
        fences = [fence for _, fence in ticks.lines()]
        _expect(fences == sorted(fences), "an older run of a task went on beside a newer one")
