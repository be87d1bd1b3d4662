"""C21, an address of one use sends one event."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.checker.verdict import Violation
from tests.chaos.history import AddressUse, EventRow, History


def addresses(history: History) -> Iterator[Violation]:
    """C21 of each key that has an address."""
    uses: dict[str, list[AddressUse]] = defaultdict(list)
    events: dict[str, list[EventRow]] = defaultdict(list)
    for use in history.address_uses:
        if not use.guessed:
            uses[use.key].append(use)
        elif use.answer not in ("", "unknown"):
            yield Violation(
                "C21.guess", "", f"nobody made the address that was guessed for {use.key}; it is {use.answer}"
            )
    for event in history.events:
        events[event.key].append(event)
    for key in sorted({*uses, *events}):
        yield from _of_key(key, uses[key], events[key])


def _of_key(key: str, uses: list[AddressUse], events: list[EventRow]) -> Iterator[Violation]:
    accepted = [use for use in uses if use.answer == "open"]
    if len(accepted) > 1:
        yield Violation("C21.twice", "", f"one use of the address of {key} is accepted; {len(accepted)} were")
    if len(events) > 1:
        yield Violation("C21.twice", "", f"the address of {key} sends one event; it sent {len(events)}")
    if accepted and [event.value for event in events[:1]] != [accepted[0].value]:
        sent = events[0].value if events else "nothing"
        yield Violation(
            "C21.event",
            "",
            f"the use of the address of {key} that was accepted sent {accepted[0].value}; {sent} is there",
        )
    elif events and events[0].value not in {use.value for use in uses}:
        yield Violation(
            "C21.event", "", f"an event of {key} is of a use of its address; {events[0].value} is of none"
        )
    elif not accepted and any(use.answer == "used" for use in uses) and not events:
        yield Violation("C21.event", "", f"the address of {key} is used with its event; there is none")
    elif not accepted and len(uses) > 1 and all(use.answer and use.tries == 1 for use in uses):
        yield Violation("C21.nobody", "", f"one of the uses of the address of {key} is accepted; none was")
