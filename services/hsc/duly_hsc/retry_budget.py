"""How many retries a lambda may have: a share of its first attempts, so that what fails does not crowd out what works.

No retry is refused. When a lambda's account is overdrawn its further retries are put off for as long as its income
takes to pay for those before them. Pure arithmetic; each HSC keeps the accounts of what goes through it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from duly_core.config.live_sections import LiveHscSettings

_WINDOW = 10.0
"""Seconds over which first attempts are averaged, and for which an account may save."""

_JITTER = 1.5
"""The store makes each wait up to so many times as long, so that they do not end together."""


@dataclass(slots=True)
class _Account:
    balance: float
    at: float
    first_attempts: float = 0.0
    """A second, smoothed."""


class RetryBudget:
    """One account a lambda: first attempts and time pay in, retries draw."""

    def __init__(self, settings: Callable[[], LiveHscSettings], now: Callable[[], float]) -> None:
        """Make one.

        Args:
            settings: tells what holds now: `retry_share` is how many retries a first attempt pays for, `retry_floor` how many a
                second every lambda has in any case. No retry is put off for longer than `max_hold_back`, and no debt takes
                longer to pay.
            now: seconds on a clock that never goes back.
        """
        self._settings = settings
        self._now = now
        self._accounts: dict[str, _Account] = {}

    def started(self, first_attempts: Mapping[str, int]) -> None:
        """So many first attempts of each lambda were claimed."""
        share = self._settings().retry_share
        for name, count in first_attempts.items():
            account = self._settled(name)
            account.first_attempts += count / _WINDOW
            account.balance += count * share

    def retried(self, retries: Mapping[str, int]) -> None:
        """So many retries of each lambda were granted, now or for later."""
        longest = self._longest().total_seconds()
        for name, count in retries.items():
            account = self._settled(name)
            account.balance = max(account.balance - count, -self._income(account) * longest)

    def hold_back(self) -> dict[str, timedelta]:
        """For each lambda whose account is overdrawn, how far ahead its next retry may be at the earliest."""
        held, longest = {}, self._longest()
        for name in list(self._accounts):
            account = self._settled(name)
            if account.balance < 0:
                seconds = -account.balance / self._income(account)
                held[name] = min(longest, timedelta(seconds=min(seconds, 1e9)))
        return held

    def _settled(self, name: str) -> _Account:
        """The account as it is now."""
        now, floor = self._now(), self._settings().retry_floor
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _Account(balance=floor * _WINDOW, at=now)
        elapsed = now - account.at
        account.at = now
        account.balance = min(account.balance + floor * elapsed, self._income(account) * _WINDOW)
        account.first_attempts *= math.exp(-elapsed / _WINDOW)
        return account

    def _income(self, account: _Account) -> float:
        """Retries a second that this lambda earns."""
        settings = self._settings()
        return settings.retry_floor + settings.retry_share * account.first_attempts

    def _longest(self) -> timedelta:
        return self._settings().max_hold_back / _JITTER
