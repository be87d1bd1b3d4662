"""Guards that a chaos run can be done without: `make chaos` must find each that is gone (docs/chaos.md has the table)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duly_core.access.authorizer import Authorizer, Credentials
from duly_core.access.grants import Access, Grant
from duly_core.access.principal import Principal
from duly_core.access.roles import Role
from duly_core.attachments.sweep import Sweep, SweepRound
from duly_core.fairness.cursors import TurnCursors
from duly_core.fairness.store import FairLambdas
from tests.chaos.access import CLIENT
from tests.fixtures.guards import FUNCTION_GUARDS, STATEMENT_GUARDS, Edit, InCode, InFunction


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is wrong, and which runs can show it."""

    what: str
    edits: tuple[Edit, ...]
    queue: str = "any"
    auth: bool = False

    def plant(self) -> None:
        """In this process and those that it forks."""
        for edit in self.edits:
            if not isinstance(edit, InFunction):
                edit.plant()

    def plant_in(self, dsn: str) -> None:
        """In the functions of a database."""
        for edit in self.edits:
            if isinstance(edit, InFunction):
                edit.plant(dsn)


_turn_parameters = TurnCursors.parameters


def _take_no_turns(self: TurnCursors, fair: FairLambdas, picks: Sequence[Any]) -> dict[str, Any]:
    return _turn_parameters(self, fair, picks) | {"takes_turns": [False] * len(picks)}


async def _reach_all(_store: object, _action: object, ids: Sequence[Any]) -> Sequence[Any]:
    return ids


def _nothing_is_beyond(_action: object, _names: object) -> tuple[str, ...]:
    return ()


def _allow_lambdas(_names: Iterable[str]) -> None:
    pass


async def _admit_all(_self: Authorizer, _path: str, principal: Principal) -> Access:
    return Access(principal.name, [Grant(principal.name, role, "*") for role in Role])


_identify = Authorizer.identify


async def _take_nobody_for_a_client(self: Authorizer, credentials: Credentials) -> Principal:
    return await _identify(self, credentials) if credentials.authorization else Principal(CLIENT)


async def _remove_nothing(_self: Sweep, _done: SweepRound) -> None:
    pass


def _store(what: str, queue: str = "any") -> Mutation:
    edits = STATEMENT_GUARDS.get(what) or FUNCTION_GUARDS[what]
    return Mutation(what, edits, queue)


def _code(what: str, module: str, name: str, instead: Any) -> Mutation:
    return Mutation(what, (InCode(module, name, instead),), auth=True)


MUTATIONS: Mapping[str, Mutation] = {
    "finish-without-token": _store("a result needs no token"),
    "fail-without-token": _store("a failure needs no token"),
    "snooze-without-token": _store("a snooze needs no token"),
    "hand-over-without-token": _store("a task is handed over without a token"),
    "release-without-token": _store("a release needs no token"),
    "heartbeat-without-token": _store("a heartbeat needs no token"),
    "checkpoint-without-token": _store("a checkpoint needs no token"),
    "claim-of-what-is-held": _store("a claim takes what another holds"),
    "claim-work-of-any-status": _store("work is picked and claimed whatever its status", "store"),
    "claim-without-fence": _store("a claim of work leaves the fence as it was", "store"),
    "claim-before-due": _store("work is claimed before its time", "store"),
    "reclaim-before-due": _store("holders are reclaimed before their time"),
    "reclaim-without-charge": _store("a reclaim is not charged"),
    "session-order": _store("the next task of a session is the one that joined last"),
    "session-failure": _store("a failure ends nobody else of its session"),
    "resource-admission": _store("what needs a resource is always admitted"),
    "sweep-of-what-is-used": _store("a sweep removes attachments that tasks use"),
    "orphan-stays": Mutation(
        "blobs of no attachment stay",
        (InCode("duly_core.attachments.sweep", "Sweep.remove_orphans", _remove_nothing),),
    ),
    "address-used-twice": _store("an address of one use is used twice"),
    "fair-turns": Mutation(
        "the oldest task starts first, whatever its key",
        (InCode("duly_core.fairness.cursors", "TurnCursors.parameters", _take_no_turns),),
        "store",
    ),
    "schedule-any-lambda": _code(
        "a client schedules tasks of any lambda", "duly_frontend.access.reach", "beyond", _nothing_is_beyond
    ),
    "reach-any-task": _code(
        "whoever may change some tasks may change all", "duly_frontend.access.reach", "reachable", _reach_all
    ),
    "claim-any-lambda": _code(
        "a host claims tasks of any lambda", "duly_hsc.access", "require_run", _allow_lambdas
    ),
    "call-without-role": _code(
        "each caller has every role", "duly_core.access.authorizer", "Authorizer.admit", _admit_all
    ),
    "call-without-token": _code(
        "who shows no token is taken for a client",
        "duly_core.access.authorizer",
        "Authorizer.identify",
        _take_nobody_for_a_client,
    ),
}
"""By their names on the command line."""
