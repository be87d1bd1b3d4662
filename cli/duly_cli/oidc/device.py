"""Sign-in on another device (RFC 8628), for machines without a browser."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from duly_core.access.issuer_metadata import is_secret_way
from duly_core.oidc.errors import ClientRefusedError, ProviderAwayError, ProviderRefusedError
from duly_core.oidc.provider import Provider, Tokens, shown

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_USUAL_INTERVAL = 5.0
_SLOWER = 5.0
"""Seconds that `slow_down` adds, as the standard has it."""
_INTERVALS = 1.0, 60.0
_LONGEST = 1_800.0


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a person enters on another device."""

    device_code: str
    user_code: str
    address: str
    """Where it is entered."""
    lasts: float
    """Seconds."""
    interval: float
    """Seconds between two questions."""


async def begin(provider: Provider) -> DeviceCode:
    """Return a new code.

    Raises:
        ProviderAwayError: the provider does not answer, or does not know this client.
        ProviderRefusedError: it offers no sign-in on another device, or not for this client.
    """
    url = (await provider.metadata()).get("device_authorization_endpoint")
    if not isinstance(url, str) or not is_secret_way(url):
        raise ProviderRefusedError(f"{provider.host} offers no sign-in on another device")
    form = urlencode({"scope": provider.client.scopes})
    return _read(await provider.post("device", url, form), provider.host)


def _read(said: Mapping[str, Any], host: str) -> DeviceCode:
    texts = [said.get(name) for name in ("device_code", "user_code", "verification_uri")]
    code, user_code, address = texts
    if not (isinstance(code, str) and isinstance(user_code, str) and isinstance(address, str)):
        raise ProviderRefusedError(f"{host} answers with no code for another device")
    if not code or not user_code or not is_secret_way(address):
        raise ProviderRefusedError(f"{host} answers with no https address for another device")
    low, high = _INTERVALS
    lasts = min(_seconds(said.get("expires_in"), _LONGEST), _LONGEST)
    interval = min(max(_seconds(said.get("interval"), _USUAL_INTERVAL), low), high)
    return DeviceCode(code, shown(user_code), shown(address), lasts, interval)


def _seconds(said: object, otherwise: float) -> float:
    is_number = isinstance(said, (int, float)) and not isinstance(said, bool) and 0 <= said <= 2**31
    return float(said) if is_number else otherwise  # type: ignore[arg-type]  # it is a number


async def poll(provider: Provider, code: DeviceCode, pause: Callable[[float], Any] = asyncio.sleep) -> Tokens:
    """Return the tokens once the person has entered the code; a provider that does not answer is asked again.

    Raises:
        ProviderAwayError: the code has expired, and the provider did not answer at the end.
        ClientRefusedError: the provider does not know this client.
        ProviderRefusedError: the person refused, or the code has expired.
    """
    away: ProviderAwayError | None = None
    interval = code.interval
    left = code.lasts
    while left > 0:
        await pause(interval)
        left -= interval
        try:
            return provider.tokens(await provider.grant("device", _GRANT, device_code=code.device_code))
        except ClientRefusedError:
            raise
        except ProviderAwayError as error:
            away = error
            interval = min(interval * 2, _INTERVALS[1])
        except ProviderRefusedError as error:
            away = None
            if error.code == "slow_down":
                interval += _SLOWER
            elif error.code != "authorization_pending":
                raise
    if away is not None:
        raise away
    raise ProviderRefusedError("nobody entered the code in time", "expired_token")
