"""Renews the ID tokens of sessions with their refresh tokens, before they expire."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from duly_console.errors import PageError, SignInNeededError
from duly_console.session_cookie import Session
from duly_core.oidc.errors import ProviderAwayError, ProviderRefusedError
from duly_core.oidc.provider import Provider, Tokens
from duly_core.process.outcomes import take_outcome

EARLY = 30
"""Seconds before its end from which on an ID token is renewed: the clocks of this machine and of the Frontend may differ by as much."""

_RETRY = 5
"""Seconds after a call without an answer until the next one."""
_KEPT = 600
"""Seconds for which a refused refresh token is known to be refused."""
_SWEEP = 60
"""Seconds from one look for answers that are over to the next."""
_MOST = 10_000
"""Refresh tokens whose answer is remembered."""
_AWAY = "The identity provider does not answer, and your sign-in has to be renewed. Try again in a moment."


@dataclass(frozen=True, slots=True)
class _Renewal:
    """What became of one refresh token, or what becomes of it."""

    answer: asyncio.Task[Tokens]
    began_at: float
    csrf: str
    """Of the session: it stays the same however often its tokens are renewed."""


class Renewals:
    """One call for each refresh token, however many requests come with it: a provider may take a second use for a theft.

    The answer is remembered: the answers to other requests of the same browser may not have brought it the new token yet.
    It is forgotten once its ID token has expired, or the session has signed out.
    """

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.time) -> None:
        self._provider = provider
        self._now = clock
        self._renewals: OrderedDict[bytes, _Renewal] = OrderedDict()
        self._away_until = float("-inf")
        self._sweep_at = float("-inf")

    async def fresh(self, session: Session) -> Session:
        """Return a session whose ID token lasts for a while; the same one: there is nothing to renew.

        Raises:
            SignInNeededError: the provider does not go on with this session.
            PageError: the provider does not answer, and the ID token has expired.
        """
        self._sweep()
        is_new = False
        while session.refresh and self._is_due(session.expires_at) and not is_new:
            try:
                is_new, tokens = await self._renewed(session)
            except ProviderAwayError as error:
                if session.expires_at > self._now():
                    return session
                raise PageError(503, _AWAY) from error
            except ProviderRefusedError as error:
                raise SignInNeededError("the identity provider has ended the session") from error
            found = tokens.id_token
            session = replace(
                session,
                token=found.text,
                refresh=tokens.refresh_token,
                expires_at=found.expires_at,
            )
        if session.expires_at <= self._now():
            raise SignInNeededError("the ID token has expired")
        return session

    def forget(self, session: Session) -> None:
        """Forget the tokens of a session that has ended."""
        self._drop(lambda each: each.csrf == session.csrf)

    def _sweep(self) -> None:
        """Forget answers that serve nobody any longer, once in a while."""
        if self._now() >= self._sweep_at:
            self._sweep_at = self._now() + _SWEEP
            self._drop(self._is_past)

    def _is_past(self, known: _Renewal) -> bool:
        if not known.answer.done():
            return False
        if known.answer.cancelled() or known.answer.exception() is not None:
            return self._now() - known.began_at > _KEPT
        return known.answer.result().id_token.expires_at <= self._now()

    def _drop(self, is_over: Callable[[_Renewal], bool]) -> None:
        for key in [key for key, each in self._renewals.items() if is_over(each)]:
            del self._renewals[key]

    def _is_due(self, expires_at: float) -> bool:
        return expires_at - self._now() <= EARLY

    async def _renewed(self, session: Session) -> tuple[bool, Tokens]:
        """Return the answer to a session's refresh token, and whether this request asked for it."""
        key = hashlib.sha256(session.refresh.encode()).digest()
        known = self._renewals.get(key)
        is_new = known is None or self._is_over(known, session)
        if known is None or is_new:
            if self._now() < self._away_until:
                raise ProviderAwayError("the provider did not answer a moment ago")
            known = _Renewal(asyncio.create_task(self._ask(session)), self._now(), session.csrf)
            known.answer.add_done_callback(take_outcome)
            self._renewals[key] = known
            self._renewals.move_to_end(key)
            while len(self._renewals) > _MOST:
                self._renewals.popitem(last=False)
        # a request that ends early does not end the call: the refresh token may be used up
        return is_new, await asyncio.shield(known.answer)

    def _is_over(self, known: _Renewal, session: Session) -> bool:
        """Whether an answer is no longer one."""
        if not known.answer.done():
            return False
        error = known.answer.exception()
        if error is None:
            tokens = known.answer.result()
            is_used_up = tokens.refresh_token != session.refresh
            return not is_used_up and self._is_due(tokens.id_token.expires_at)
        return not isinstance(error, ProviderRefusedError) or self._now() - known.began_at > _KEPT

    async def _ask(self, session: Session) -> Tokens:
        try:
            return await self._provider.refresh(session.refresh, self._provider.read(session.token))
        except ProviderAwayError:
            self._away_until = self._now() + _RETRY
            raise
