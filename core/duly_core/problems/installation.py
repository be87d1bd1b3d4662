"""Finds what is wrong with the installation itself: services, pools, tokens, certificates, and a store that is slow."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import AboutHost, FoundProblem, found
from duly_core.problems.statements import PROBLEMS
from duly_core.process.wall_clock import LARGEST_SKEW

_GRACE = timedelta(seconds=30)
"""Services that restart are away for less."""
REPORTED_WITHIN = timedelta(seconds=90)
"""After the return of a store: processes report to some stores each minute."""
_ALIVE_WITHIN = timedelta(minutes=3)
"""Three reports of such a process."""
TOKENS_WITHIN = timedelta(days=7)
_SOON = timedelta(days=2)
_CERTIFICATES_WITHIN = timedelta(days=14)
SLOW = timedelta(milliseconds=500)
"""A statement that reads one row takes a millisecond."""
_MOST = 50


class Outage(NamedTuple):
    """When the store did not answer: no process could report."""

    since_at: datetime
    until_at: datetime

    def excuses(self, reported_at: datetime, now: datetime) -> bool:
        """Whether a process that reported last at that time may not have been able to since."""
        return (
            self.since_at - _ALIVE_WITHIN < reported_at < self.until_at
            and now - self.until_at < REPORTED_WITHIN
        )


async def services(
    store: Store,
    now: datetime,
    expected: Collection[str],
    started_at: datetime,
    outage: Outage | None = None,
) -> tuple[list[FoundProblem], list[AboutHost]]:
    """Return a problem for each expected service of which no process reports itself; and processes whose clocks differ.

    `started_at`: since when somebody looks, for services that were never seen. `outage`: the last one of the store.

    Raises:
        StoreUnavailableError: ask again.
    """
    last: dict[str, AboutHost] = {}
    alive: set[str] = set()
    silent: set[str] = set()
    skewed = []
    for service, _, host_name, state, reported_at, ahead in await store.run(PROBLEMS["services_seen"], {}):
        host = AboutHost("", host_name, service, reported_at, ahead)
        if service not in last and state == "silent":
            silent.add(service)
        last.setdefault(service, host)
        if state == "alive":
            alive.add(service)
            if ahead is not None and abs(ahead) > LARGEST_SKEW:
                skewed.append(host)
    away = []
    for service in sorted({*expected} - alive):
        seen = last.get(service)
        since_at = started_at if seen is None or seen.reported_at is None else seen.reported_at
        if outage is not None and service in silent and outage.excuses(since_at, now):
            continue
        if now - since_at > _GRACE:
            hosts = [] if seen is None else [seen]
            away.append(found(Kind.SERVICE_AWAY, Severity.CRITICAL, since_at, service, hosts=hosts))
    return away, skewed


async def pools_failing(store: Store) -> list[FoundProblem]:
    """Return a problem for each pool whose driver fails.

    Raises:
        StoreUnavailableError: ask again.
    """
    return [
        found(
            Kind.POOL_DRIVER_FAILS,
            Severity.WARNING,
            failed_since,
            pool,
            lambdas={name: 0 for name in lambdas if not name.endswith("*")},
            failure=failure,
        )
        for pool, failure, failed_since, lambdas in await store.run(
            PROBLEMS["failing_pools"], {"most": _MOST}
        )
    ]


async def tokens_expiring(store: Store, now: datetime) -> list[FoundProblem]:
    """Return a problem for each token that expires within a week, or expired a moment ago.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {"within": TOKENS_WITHIN, "most": _MOST}
    return [
        found(
            Kind.TOKEN_EXPIRES,
            Severity.WARNING if expires_at - now < _SOON else Severity.INFORMATION,
            expires_at - TOKENS_WITHIN,
            token_id,
            lambdas={},
            principal=principal,
            note=note,
            expires_at=expires_at.isoformat(),
        )
        for token_id, principal, note, expires_at in await store.run(PROBLEMS["expiring_tokens"], asked)
    ]


def certificate_expiring(path: str, service: str, now: datetime) -> list[FoundProblem]:
    """Return a problem if a service's own certificate expires within two weeks; it reads the file."""
    if not path:
        return []
    from cryptography import x509  # only where there is TLS

    try:
        expires_at = x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return []  # the server that uses it says so
    if expires_at - now > _CERTIFICATES_WITHIN:
        return []
    return [
        found(
            Kind.CERTIFICATE_EXPIRES,
            Severity.CRITICAL if expires_at - now < _SOON else Severity.WARNING,
            expires_at - _CERTIFICATES_WITHIN,
            service,
            expires_at=expires_at.isoformat(),
        )
    ]


def store_slow(answered_in: Sequence[timedelta], now: datetime) -> list[FoundProblem]:
    """Return a problem if the shortest of the last statements took long: one of them alone may have had bad luck."""
    if not answered_in or min(answered_in) < SLOW:
        return []
    milliseconds = round(min(answered_in).total_seconds() * 1000)
    return [found(Kind.STORE_SLOW, Severity.WARNING, now, lambdas={}, milliseconds=milliseconds)]
