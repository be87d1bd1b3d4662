"""The judge of a chaos run: a pure function from what was recorded to what must never be.

C0 journal     the journal can be read (a torn last line of a killed process is none)
C1 lost        every acknowledged task ends
   unknown, vanished    what ran, or was written, is in the tables
   unproven    a success has an execution that ended well under the claim that wrote it
   ending, cancel, executions    it ended as it may, as CancelTask said, and not without having run
C2 times, lock, unended    executions of a task never overlap: by clock, by kernel lock, by signs of life
   lease       no execution goes on when its claim has ended
C3 stale, token, reused    every write of a holder is made under the token that is current
   replayed    a call with the token of a claim that is over changes no row of any table
   fence, order    fences grow by one with each claim, and executions come in their order
   early       a claim is taken away only when its time is over
   unclaimed   what runs has a claim, and had it before
C4 move, chain, row    only the moves of MOVES (tests/fixtures/moves.py), without a gap, up to the row
   way         without a queue nothing is enqueued; with one only what is enqueued is claimed
   second-end, after-end    one end, and nothing after it
C5 same-claim, unexplained, fault-free    nothing runs again without a reason
C6 late        everything is final within the bound after the last heal
   start       where nothing that is done may make it late, it starts when it is due
C7 trigger, sample    every live row is looked at again within its time
C8 charge, row, attempt    failures, crashes, fences and attempts are exact
   poison, quarantine, innocent    who crashes is quarantined at the right crash, and nobody else
C9 leak, connections, processes    nothing outlives the stop, nothing piles up
C10 overlap, order    tasks of one session run one at a time, in the order in which they joined it
   waiting     what waits for its turn has no claim
   rest        a failure that is to end those that wait does, and nothing else ends them so
   session, left    each is in the session that it was scheduled in, and no session outlives its tasks
C12 exceeded, running    no more units of a resource are taken than there are: by the store's record, by what ran
   idle        nothing is parked that fits into what is free, unless another of its line was released
   rate        in no stretch of time more tasks start than the rate of a resource and its burst allow
   asked, left    a task takes what it names, and what is written as taken is what live tasks hold
C13 early   a node runs when what it waits for has happened
   edge        each edge is decided once, in the transaction that ends its source
   skip        what can never run is skipped, nothing else is, and it never runs
   counts, whole, graph    a graph ends with its nodes, counts them right, and has all of them or none
C14 twice, lost, astray    each tick that was decided has one task, and nothing else has
   closed      with a calendar no tick is in closed time; ticks that move to one opening are one
   overlap     where ticks are left out while a task lives, no two live at a time
C15 update, priority    a change is in force for each start after its answer
   due         nothing starts before the time that it was moved to
   purge       what is deleted by a filter had ended
C19 starved    between two starts of a fair key that has due tasks, each other key has its turn at most once
C18 twice      of tasks whose unique key is held until their end no two live at a time
C20 twice, missing, order    a watch tells each end once, in order, and leaves none out
   lost        a watch goes on, unless another Postgres took over
C21 twice, nobody    of the uses of an address of one use one is accepted
   event       then its event is there, once
   guess       who guesses an address has none
C17 content, missing    who holds a claim reads what its task uses, and gets what was uploaded
   result      a success is not refused because what it returns was removed within the grace
   lost        at the end each attachment of each task can be fetched whole
   unused, removing, use    what no task uses goes after the grace, and uses go with their tasks
   orphan, part, usage    blobs, and the bytes that are counted, are those of the attachments

(C11, isolation, is a matter of load: tests/executor.)
"""

from collections.abc import Iterator

from tests.chaos.checker.addresses import addresses
from tests.chaos.checker.cases import Case, cases_of
from tests.chaos.checker.changes import changes
from tests.chaos.checker.counts import Reasons, counts
from tests.chaos.checker.fair_keys import fair_keys
from tests.chaos.checker.figures import figures_of
from tests.chaos.checker.files import files
from tests.chaos.checker.graph_places import Waiting, note_graph_releases, places_of
from tests.chaos.checker.graphs import graphs
from tests.chaos.checker.limits import asked, limits
from tests.chaos.checker.lines import Lines
from tests.chaos.checker.losses import losses
from tests.chaos.checker.moves import moves
from tests.chaos.checker.overlaps import SignsOfLife, overlaps
from tests.chaos.checker.sessions import membership, sessions
from tests.chaos.checker.stale_writes import stale_writes
from tests.chaos.checker.sufficiency import inconclusive
from tests.chaos.checker.system import ends, samples, triggers
from tests.chaos.checker.ticks import ticks
from tests.chaos.checker.turns import Turn, note_releases, turns_of
from tests.chaos.checker.unique import unique
from tests.chaos.checker.verdict import Verdict, Violation
from tests.chaos.checker.watches import watches
from tests.chaos.history import History

__all__ = ["Verdict", "Violation", "check"]


def check(history: History) -> Verdict:
    """Judge a run."""
    cases = cases_of(history)
    turns = turns_of(cases)
    note_releases(cases, turns)
    places = places_of(history, cases)
    note_graph_releases(cases, places)
    violations, notes = [], []
    for violation in _found(history, cases, turns, places):
        reason = history.exemptions.get(violation.rule) or history.exemptions.get(
            violation.rule.partition(".")[0]
        )
        if reason:
            notes.append(f"exempt ({reason}): {violation}")
        else:
            violations.append(violation)
    return Verdict(
        tuple(violations), tuple(inconclusive(history, cases)), tuple(notes), figures_of(history, cases)
    )


def _found(
    history: History, cases: dict[str, Case], turns: dict[str, list[Turn]], places: dict[str, Waiting]
) -> Iterator[Violation]:
    lines = Lines(history.started_ns)
    signs, reasons = SignsOfLife(history), Reasons(history, cases)
    for task_id in sorted(cases):
        case = cases[task_id]
        yield from losses(history, case, lines)
        yield from overlaps(history, case, signs, lines)
        yield from moves(history, case, lines)
        yield from counts(history, case, reasons, lines)
        yield from triggers(history, case, lines)
        yield from membership(case, lines)
        yield from asked(case, lines)
    yield from sessions(history, cases, turns, signs, lines)
    yield from graphs(history, cases, places, signs, lines)
    yield from ticks(history, cases, lines)
    yield from changes(history, cases, lines)
    yield from unique(cases, lines)
    yield from fair_keys(history, cases, lines)
    yield from limits(history, cases, signs, lines)
    yield from watches(history, cases, lines)
    yield from addresses(history)
    yield from files(history, cases, lines)
    yield from stale_writes(history, lines)
    yield from samples(history, lines)
    yield from ends(history, cases)
