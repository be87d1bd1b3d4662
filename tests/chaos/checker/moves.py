"""C3, no stale write is accepted; C4, only legal moves, and one end; C8, every move charges what it must.

Each transition is recognised as one of MOVES by what it changed; the audit does not know its name.
"""

from collections.abc import Iterator

from duly_core.tasks.lifecycle import FINAL, HELD, READY, Status
from tests.chaos.checker.cases import Case, ends_claim, starts_claim
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History, Transition
from tests.fixtures.moves import MOVES


def _arrows() -> Iterator[tuple[str, str]]:
    for move in MOVES:
        for before in move.before or {""}:
            # a request to cancel changes no status
            for after in {before} if move.name == "request_cancel" else move.after:
                yield str(before), str(after)
    # what comes too early by the rate of a resource is put off, and stays what it is
    for status in READY:
        yield str(status), str(status)
    # what waits is marked to end without a run (FAIL_REST); `end_waiting` ends it
    yield str(Status.WAITING), str(Status.WAITING)


_ARROWS = frozenset(_arrows())


def by_silence(transition: Transition) -> bool:
    """Whether the Store Consumer ended the claim because its holder was silent: nobody showed a token."""
    if not ends_claim(transition) or transition.last_token:
        return False
    return transition.after in {
        Status.ENQUEUED,
        Status.RETRIABLE_FAILURE,
        Status.FATAL_FAILURE,
        Status.CANCELLED,
    }


def moves(history: History, case: Case, lines: Lines) -> Iterator[Violation]:
    """C3, C4 and what C8 says about single moves, of one task."""
    previous: Transition | None = None
    tokens: set[str] = set()
    for move in case.transitions:
        wrong = _illegal(previous, move)
        if wrong is None:
            wrong = _astray(history, move) or _stale(history, move, tokens) or _charge(move)
        if wrong is not None:
            rule, expected = wrong
            shown = [lines.transition(each) for each in (previous, move) if each is not None]
            yield Violation(rule, case.task_id, expected, tuple(shown))
        if move.token:
            tokens.add(move.token)
        previous = move


def _illegal(previous: Transition | None, move: Transition) -> tuple[str, str] | None:
    """C4: the arrow is drawn, and begins where the last one ended."""
    legal = (move.before, move.after) in _ARROWS
    if previous is not None and previous.after in FINAL and not (legal and move.before == previous.after):
        if move.after in FINAL:
            return "C4.second-end", f"a task ends once; it had ended as {previous.after}"
        return "C4.after-end", f"nothing follows an end; it had ended as {previous.after}"
    came_from = previous.after if previous is not None else ""
    if move.before != came_from:
        return (
            "C4.chain",
            f"each move begins where the last one ended ({came_from or 'nothing'}): one is not recorded",
        )
    if not legal:
        return (
            "C4.move",
            f"only moves of MOVES are made; {move.before} -> {move.after or 'gone'} is none",
        )
    if previous is not None and _counts(previous) != _counts_before(move) and move.before not in FINAL:
        return "C4.chain", "fence, failures, crashes and token are as the last move left them"
    return None


def _astray(history: History, move: Transition) -> tuple[str, str] | None:
    """C4: it went the way of the queue that there is."""
    if history.queue == "store" and move.after == Status.ENQUEUED:
        return "C4.way", "where there is no queue nothing is enqueued"
    if history.queue == "sqs" and move.before in READY and move.after in HELD:
        return "C4.way", "where there is a queue only what is enqueued is claimed"
    return None


def clock_was_moved(history: History, move: Transition) -> bool:
    """Whether the store's clock may have been moved between the statement's look at it and the audit's.

    The audit takes `at_ns` after it has looked, so it is no earlier than the move; but for the drift of the two clocks.
    """
    slack = history.limits.clock_slack_ns
    return any(
        before_ns - slack <= move.at_ns <= after_ns + history.limits.statement_ns + slack
        for before_ns, after_ns in history.clock_moves
    )


def _stale(history: History, move: Transition, tokens: set[str]) -> tuple[str, str] | None:
    """C3: who wrote had the claim that was current."""
    if starts_claim(move):
        return _bad_claim(move, tokens)
    if move.fence != move.fence_before:
        return "C3.fence", "only a claim changes the fence"
    if move.before in HELD and move.after in HELD and move.token != move.token_before:
        return _bad_token(move, tokens)
    if by_silence(move):
        waiting = move.trigger_before_in_ns
        if (
            waiting is not None
            and waiting > history.limits.clock_slack_ns
            and not clock_was_moved(history, move)
        ):
            early = waiting / 1e9
            return (
                "C3.early",
                f"a claim is taken from its holder when its time is over; it was {early:.6f} s early",
            )
    elif ends_claim(move) and move.last_token != move.token_before:
        return "C3.stale", "who ends a claim shows its token; another token was shown, and accepted"
    return None


def _bad_token(move: Transition, tokens: set[str]) -> tuple[str, str] | None:
    """A claim that nobody has taken yet, for its reply was lost, may get another token (claim_again)."""
    if not move.before == move.after == Status.CLAIMED:
        return "C3.token", "a claim keeps its token from its first heartbeat until it ends"
    if move.token in tokens:
        return "C3.reused", "each claim has a token of its own; this one had been the task's before"
    return None


def _bad_claim(move: Transition, tokens: set[str]) -> tuple[str, str] | None:
    if move.fence != move.fence_before + 1:
        return "C3.fence", "each claim makes the fence greater by one"
    if not move.token:
        return "C3.token", "a claim has a token"
    if move.token in tokens:
        return "C3.reused", "each claim has a token of its own; this one had been the task's before"
    return None


def _charge(move: Transition) -> tuple[str, str] | None:
    """C8: failures and crashes grow by what the move says, and by nothing else."""
    charged = move.failures - move.failures_before, move.crashes - move.crashes_before
    one = {(1, 0), (0, 1)}
    legal = {(0, 0)}
    if by_silence(move):
        legal = {(0, 1)}
    elif ends_claim(move) and move.after in {Status.RETRIABLE_FAILURE, Status.FATAL_FAILURE}:
        legal = one
    elif ends_claim(move) and move.after == Status.CANCELLED and move.cancel_requested_before:
        legal |= one  # it stopped as it was asked to, or failed and is not to run again
    elif move.before in FINAL:  # redriven: it starts again
        legal = {(-move.failures_before, -move.crashes_before)}
    if charged in legal:
        return None
    allowed = " or ".join(map(str, sorted(legal)))
    what = f"{move.before or 'nothing'} -> {move.after} charges {allowed} (failures, crashes); it charged {charged}"
    return "C8.charge", what


def _counts(move: Transition) -> tuple[int, int, int, str]:
    return move.fence, move.failures, move.crashes, move.token


def _counts_before(move: Transition) -> tuple[int, int, int, str]:
    return move.fence_before, move.failures_before, move.crashes_before, move.token_before
