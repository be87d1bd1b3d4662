"""What one caller may have of the Frontend at a time: it must not delay the others."""

from dataclasses import dataclass
from functools import partial
from typing import Self

from duly_core.attachments.blobs import PARTS_IN_FLIGHT
from duly_core.rpc.call_load import CallLoad
from duly_core.traffic.slices import Slices
from duly_core.traffic.time_budgets import TimeBudgets
from duly_core.traffic.turns import Turns
from duly_frontend import events
from duly_frontend.settings import FrontendSettings

_MANY = 1_000_000
_WAITING_CALLS = 2_000
"""Of one caller: as many as a connection may have."""
_WAITING_LARGE = 50
_UNREAD_ANSWERS, _UNREAD_OF_ONE = 128, 16
"""Of up to 4 MiB: half a GiB together. gRPC has no way to take back one that is not read, other than the end of its connection."""
_LONG_POLLS = frozenset({"WaitTask", "WaitGraph", "ReadOutput", "Watch"})


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The bounds of one Frontend, by kind of call. A caller is a principal, or a connection that has none."""

    calls: CallLoad
    """Of all calls: how many are under way, and the reading and checking of large ones."""
    lists: Turns
    """Lists, and what is done by filter."""
    reads: Turns
    """Reads of many tasks."""
    graphs: Turns
    """Writes of graphs, definitions and registrations: each is one long transaction."""
    parts: Turns
    """Parts of attachments that are written or read: each has a thread."""
    answers: Turns
    """Answers with parts of attachments, from their making until the caller has them: who does not read keeps them in memory."""
    output: Turns
    """Output of tasks that is written or read."""

    @classmethod
    def of(cls, settings: FrontendSettings, calls: CallLoad | None = None) -> Self:
        """Return those that the settings name; `calls` are those of the server, which stores share. None: there is one store."""

        def turns(what: str, slots: int, of_one: int) -> Turns:
            budgets = TimeBudgets(settings.caller_share, settings.caller_burst)
            refused = partial(events.load_refused, what)
            return Turns(
                what,
                slots,
                of_one=of_one,
                waiting_of_one=_WAITING_LARGE,
                budgets=budgets,
                refused=refused,
                waited=events.waited_for_own,
            )

        parts = Turns(
            "parts of attachments",
            PARTS_IN_FLIGHT,
            of_one=max(1, round(PARTS_IN_FLIGHT * settings.caller_share)),
            waiting_of_one=_WAITING_LARGE,
            budgets=TimeBudgets(settings.caller_share * PARTS_IN_FLIGHT, settings.caller_burst),
            refused=partial(events.load_refused, "parts of attachments"),
        )
        lists, reads = settings.list_connections, settings.read_connections
        return cls(
            calls or call_load(settings),
            lists=turns("lists", lists, max(1, lists - 1)),
            reads=turns("reads of many tasks", reads, max(1, reads // 2)),
            graphs=turns("graphs and registrations", 2, 1),
            parts=parts,
            answers=Turns(
                "answers with parts that are not read",
                _UNREAD_ANSWERS,
                of_one=_UNREAD_OF_ONE,
                waiting_of_one=_WAITING_LARGE,
                refused=partial(events.load_refused, "answers with parts that are not read"),
            ),
            output=turns("output of tasks", 4, 2),
        )


def call_load(settings: FrontendSettings) -> CallLoad:
    """Return the bounds of all calls of one server."""
    calls = Turns(
        "calls",
        _MANY,
        of_one=settings.caller_calls,
        waiting_of_one=_WAITING_CALLS,
        refused=partial(events.load_refused, "calls"),
        waited=events.waited_for_own,
    )
    large = Slices(
        "large requests",
        TimeBudgets(settings.caller_share, settings.caller_burst),
        refused=partial(events.load_refused, "large requests"),
        waited=events.waited_for_own,
    )
    return CallLoad(calls, large, _LONG_POLLS)
