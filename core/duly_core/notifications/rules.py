"""Decides what a target is told, from what it was told and what is wrong now. Pure: no I/O.

Nothing is queued. Each round compares what a target was told with the board, and makes one message of all differences. So a target that
was away hears how things stand, once.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

MOST_SHOWN = 20
"""Problems of one message; others are counted."""
BETWEEN_MESSAGES = timedelta(minutes=1)
"""A target gets at most one message in this time."""
SHORTEST_END = timedelta(minutes=1)
"""A problem that comes back within it has not ended."""
LONGEST_END = timedelta(hours=1)
"""A problem that comes back again and again is told to be over after so long without it; so long an end is remembered."""
_MOST_ENDED = 300
_LONGEST_TEXT = 400
_INSTANTS = ("appeared_at", "counted_from", "told_at", "ended_at", "since_at")


class Event(enum.Enum):
    """What a message says of a problem."""

    NEW = "new"
    WORSE = "worse"
    """It was told before, with a lower severity."""
    STILL = "still"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A problem as a target may see it, in words."""

    fingerprint: str
    kind: str
    severity: int
    subject: str
    since_at: datetime
    text: str
    hits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A problem in a message."""

    event: Event
    problem: Stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent: written before it is, so that it is the same when it is sent again."""

    message_id: str
    created_at: datetime
    items: Sequence[Item]
    """The first ones: the worst first."""
    counts: Mapping[str, int]
    """Of all problems of the message, by event."""
    worst: int
    """The highest severity of all that is not resolved; 0: all is."""

    @property
    def left_out(self) -> int:
        """Problems that are only counted."""
        return sum(self.counts.values()) - len(self.items)

    def to_facts(self) -> dict[str, Any]:
        """Return what the store keeps as JSON."""
        return {
            "id": self.message_id,
            "created_at": self.created_at.isoformat(),
            "items": [
                asdict(each.problem)
                | {"event": each.event.value, "since_at": each.problem.since_at.isoformat()}
                for each in self.items
            ],
            "counts": dict(self.counts),
            "worst": self.worst,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return it as it was kept."""
        return cls(
            message_id=facts["id"],
            created_at=datetime.fromisoformat(facts["created_at"]),
            items=[_item(each) for each in facts["items"]],
            counts=facts["counts"],
            worst=facts["worst"],
        )


def _item(facts: Mapping[str, Any]) -> Item:
    said = {name: value for name, value in facts.items() if name != "event"}
    said["since_at"] = datetime.fromisoformat(said["since_at"])
    return Item(event=Event(facts["event"]), problem=Stated(**said))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a target knows of one problem."""

    appeared_at: datetime
    """When it came last, by the board."""
    counted_from: datetime
    """It has stood since then, but for gaps that are shorter than SHORTEST_END."""
    told_at: datetime | None = None
    """When the target was told of it last; None: it was not, or was told that it is over."""
    ended_at: datetime | None = None
    returns: int = 0
    """How often it came back soon."""
    kind: str
    severity: int
    subject: str
    since_at: datetime
    text: str
    hits: str

    def end_after(self) -> timedelta:
        """Return for how long it must be away until its end is told: twice as long after each return."""
        return min(LONGEST_END, SHORTEST_END * (1 << min(self.returns, 10)))


Kept = Mapping[str, Known]
"""By fingerprint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a target was told, and the message under way."""

    problems: Kept = field(default_factory=dict)
    message: Message | None = None
    after: Kept = field(default_factory=dict)
    """What `problems` become when the message has arrived."""

    def arrived(self) -> "Told":
        """Return what was told once the message has arrived."""
        return Told(problems=self.after)

    def given_up(self) -> "Told":
        """Return what was told, without the message: the next one says how things stand then."""
        return Told(problems=self.problems)

    def to_facts(self) -> dict[str, Any]:
        """Return what the store keeps as JSON."""
        facts: dict[str, Any] = {"problems": _to_facts(self.problems)}
        if self.message is not None:
            facts |= {"message": self.message.to_facts(), "after": _to_facts(self.after)}
        return facts

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return it as it was kept."""
        message = facts.get("message")
        return cls(
            problems=_from_facts(facts.get("problems", {})),
            message=None if message is None else Message.from_facts(message),
            after=_from_facts(facts.get("after", {})),
        )


def _to_facts(kept: Kept) -> dict[str, dict[str, Any]]:
    return {
        fingerprint: {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(known).items()
        }
        for fingerprint, known in kept.items()
    }


def _from_facts(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Known]:
    return {fingerprint: Known(**_read(each)) for fingerprint, each in facts.items()}


def _read(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if name in _INSTANTS and value is not None else value
        for name, value in facts.items()
    }


class Rules(NamedTuple):
    """When a target is told."""

    delay: timedelta
    """A new problem must stand for so long."""
    repeat: timedelta | None
    """After this time it is told again; None: never."""
    is_resolved_told: bool


class Plan(NamedTuple):
    """What a round decides."""

    before: Kept
    """What is known without a message."""
    after: Kept
    """What is known once the message has arrived."""
    items: Sequence[Item]
    """What the message says; empty: there is none."""


def plan(
    known: Kept, problems: Iterable[Stated], rules: Rules, now: datetime, others: Collection[str] = ()
) -> Plan:
    """Return what to tell.

    Args:
        known: what the target knows.
        problems: all that are open and that the target is to know, the worst first.
        rules: of the target.
        now: by the store's clock.
        others: fingerprints of what is open, too, and not for the target, such as what was worse before: it has not ended.
    """
    open_now = {each.fingerprint: each for each in problems}
    before: dict[str, Known] = {}
    after: dict[str, Known] = {}
    items: list[Item] = []
    for fingerprint, problem in open_now.items():
        seen = before[fingerprint] = _seen(known.get(fingerprint), problem, now)
        after[fingerprint] = seen
        if (event := _event(seen, problem, rules, now)) is not None:
            items.append(Item(event=event, problem=_cut(problem)))
            after[fingerprint] = replace(seen, told_at=now, **_words(problem))
    for fingerprint, gone in known.items():
        if fingerprint in open_now:
            continue
        if fingerprint in others:
            before[fingerprint] = after[fingerprint] = gone
            continue
        ended = gone if gone.ended_at is not None else _ended(gone, now)
        away = now - (ended.ended_at or now)
        if ended.told_at is None:
            if away <= LONGEST_END:
                before[fingerprint] = after[fingerprint] = ended
            continue
        before[fingerprint] = after[fingerprint] = ended
        if away >= ended.end_after():
            over = replace(ended, told_at=None)
            after[fingerprint] = over
            if rules.is_resolved_told:
                items.append(Item(event=Event.RESOLVED, problem=_stated(fingerprint, ended)))
            else:
                before[fingerprint] = over
    return Plan(_bounded(before), _bounded(after), items)


def message_of(items: Sequence[Item], message_id: str, now: datetime) -> Message:
    """Return one message for all items: the first ones, and how many there are."""
    order = {Event.WORSE: 0, Event.NEW: 0, Event.STILL: 1, Event.RESOLVED: 2}
    ranked = sorted(items, key=lambda each: (order[each.event], -each.problem.severity))
    counts = {
        event.value: number for event in Event if (number := sum(each.event is event for each in items))
    }
    worst = max((each.problem.severity for each in items if each.event is not Event.RESOLVED), default=0)
    return Message(
        message_id=message_id, created_at=now, items=ranked[:MOST_SHOWN], counts=counts, worst=worst
    )


def _seen(known: Known | None, problem: Stated, now: datetime) -> Known:
    """Return what is known of a problem that is there."""
    if known is None:
        return Known(appeared_at=now, counted_from=now, **_words(problem))
    if known.ended_at is None:
        return known
    is_gap = known.told_at is not None or now - known.ended_at < SHORTEST_END
    return replace(
        known,
        ended_at=None,
        appeared_at=now,
        counted_from=known.counted_from if is_gap else now,
        returns=known.returns + 1,
    )


def _ended(known: Known, now: datetime) -> Known:
    """Return what is known of a problem that is gone: one that stood for long before has no returns to be counted."""
    stood_long = now - known.appeared_at > LONGEST_END
    return replace(known, ended_at=now, returns=0 if stood_long else known.returns)


def _event(known: Known, problem: Stated, rules: Rules, now: datetime) -> Event | None:
    if known.told_at is None:
        return Event.NEW if now - known.counted_from >= rules.delay else None
    if problem.severity > known.severity:
        return Event.WORSE
    if rules.repeat is not None and now - known.told_at >= rules.repeat:
        return Event.STILL
    return None


def _words(problem: Stated) -> dict[str, Any]:
    cut = _cut(problem)
    return {name: getattr(cut, name) for name in ("kind", "severity", "subject", "since_at", "text", "hits")}


def _cut(problem: Stated) -> Stated:
    return replace(
        problem,
        subject=problem.subject[:_LONGEST_TEXT],
        text=problem.text[:_LONGEST_TEXT],
        hits=problem.hits[:_LONGEST_TEXT],
    )


def _stated(fingerprint: str, known: Known) -> Stated:
    return Stated(
        fingerprint=fingerprint,
        kind=known.kind,
        severity=known.severity,
        subject=known.subject,
        since_at=known.since_at,
        text=known.text,
        hits=known.hits,
    )


def _bounded(kept: Mapping[str, Known]) -> dict[str, Known]:
    """Return what is known, of problems that ended the last ones."""
    ended = sorted(
        ((each.ended_at, fingerprint) for fingerprint, each in kept.items() if each.ended_at is not None),
        reverse=True,
    )
    forgotten = {fingerprint for _, fingerprint in ended[_MOST_ENDED:]}
    return {fingerprint: each for fingerprint, each in kept.items() if fingerprint not in forgotten}
