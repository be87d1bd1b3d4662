"""Collects which items of a served call were refused for want of a role: the audit log has one entry for all of them."""

import json
from collections import Counter
from contextvars import ContextVar

from duly_core.access.roles import Action

_MOST_NAMES = 20
"""What follows is counted."""


class ItemRefusals:
    """Of one call; false while nothing was refused."""

    def __init__(self) -> None:
        self._items: dict[Action, Counter[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def note(self, action: Action, name: str) -> None:
        """Add an item that names a lambda with which the caller may not do this."""
        names = self._items.setdefault(action, Counter())
        names[name if name in names or len(names) < _MOST_NAMES else "..."] += 1

    def describe(self) -> str:
        """Return JSON: how many items of which lambdas, by action."""
        told = {f"may not {action}": dict(sorted(names.items())) for action, names in self._items.items()}
        return json.dumps({"items": told}, separators=(",", ":"), ensure_ascii=False)


_refusals: ContextVar[ItemRefusals | None] = ContextVar("duly_item_refusals", default=None)


def collect_item_refusals() -> ItemRefusals:
    """Begin to collect those of this call."""
    refusals = ItemRefusals()
    _refusals.set(refusals)
    return refusals


def note_item_refusal(action: Action, name: str) -> None:
    """Note that an item of this call is refused; nothing happens where none are collected."""
    refusals = _refusals.get()
    if refusals is not None:
        refusals.note(action, name)
