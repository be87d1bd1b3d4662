"""Reads the file that describes HTTP lambdas: URLs, keys, limits. Names every mistake by its place in the file."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import SplitResult, urlsplit

from duly.callbacks.payload import DEFAULT_LIMIT_BYTES
from duly.errors import RegistrationError
from duly.http_lambdas.addresses import Network, is_allowed
from duly.lambdas.policy import Backoff, Policy
from duly.webhooks import KEY_ID, key_from_text

if TYPE_CHECKING:
    from pathlib import Path

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_MAX_RUNTIME = timedelta(minutes=1)
_MOST_KEYS = 5
_LARGEST_KEY_FILE = 4_096
_LARGEST_FILE = 4 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_LONGEST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_URL_CHARACTERS = re.compile(r"[!-~]{1,2000}")


@dataclass(frozen=True, slots=True)
class HttpLambda:
    """A lambda of the file."""

    name: str
    url: str = field(repr=False)  # its path and query may be secrets
    keys: Mapping[str, bytes] = field(repr=False)
    policy: Policy
    # A webhook tells the end of another task; other lambdas get the task's payload.
    is_webhook: bool


@dataclass(frozen=True, slots=True)
class HttpLambdas:
    """All that a file says."""

    owner: str
    version: str
    lambdas: tuple[HttpLambda, ...]
    allowed: tuple[Network, ...]
    connect_timeout: timedelta
    ca_file: str


def read_file(path: Path) -> HttpLambdas:
    """Return what a file says. Raises RegistrationError."""
    try:
        text = path.read_bytes()[: _LARGEST_FILE + 1]
    except OSError as error:
        raise RegistrationError(f"{path}: {error.strerror}") from None
    if len(text) > _LARGEST_FILE:
        raise RegistrationError(f"{path}: larger than 4 MiB")
    try:
        return _Reader(path, os.environ).file(tomllib.loads(text.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise RegistrationError(f"{path}: not TOML: {reason}") from None


class _Reader:
    """Reads one file; each error says where in it."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment

    def file(self, given: Mapping[str, Any]) -> HttpLambdas:
        self._only(given, "", ("owner", "version", "keys", "network", "lambdas", "webhooks"))
        network = self._table(given, "network", "")
        self._only(network, "network", ("allow", "allow_plaintext", "connect_timeout", "ca_file"))
        allowed = self._networks(network)
        plaintext = self._flag(network, "allow_plaintext", "network")
        known = {key_id: self._key(key_id, value) for key_id, value in self._table(given, "keys", "").items()}
        lambdas = [
            self._lambda(name, value, known, allowed, plaintext=plaintext, section=section)
            for section in ("lambdas", "webhooks")
            for name, value in self._table(given, section, "").items()
        ]
        if not lambdas:
            self._refuse("", 'no lambdas: add [lambdas."mail.send"] with a url')
        return HttpLambdas(
            owner=self._text(given, "owner", "", ""),
            version=self._text(given, "version", "", ""),
            lambdas=tuple(lambdas),
            allowed=allowed,
            connect_timeout=self._duration(network, "connect_timeout", "network") or timedelta(seconds=10),
            ca_file=self._file_name(network, "ca_file", "network"),
        )

    def _lambda(
        self,
        name: str,
        given: object,
        known: Mapping[str, bytes],
        allowed: tuple[Network, ...],
        *,
        plaintext: bool,
        section: str,
    ) -> HttpLambda:
        place = f"{section}.{name}"
        if not isinstance(given, Mapping):
            self._refuse(place, "must be a table with a url")
        policy = ("max_attempts", "max_runtime", "payload_limit", "result_limit", "backoff", "requires")
        self._only(given, place, ("url", "keys", *policy))
        return HttpLambda(
            name=name,
            url=self._url(given, place, allowed, plaintext=plaintext),
            keys=self._keys(given, place, known),
            policy=self._policy(given, place),
            is_webhook=section == "webhooks",
        )

    def _url(
        self, given: Mapping[str, Any], place: str, allowed: tuple[Network, ...], *, plaintext: bool
    ) -> str:
        url = self._text(given, "url", place)
        place = f"{place}.url"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            self._refuse(place, "not a URL")
        if _URL_CHARACTERS.fullmatch(url) is None or not parts.hostname or port == 0:
            self._refuse(place, "not a URL: write https://HOST/PATH, at most 2,000 characters of ASCII")
        if parts.scheme not in ("https", "http"):
            self._refuse(place, f"{parts.scheme!r} is no scheme for it: write https://")
        if parts.scheme == "http" and not plaintext:
            self._refuse(
                place,
                "http:// sends payloads and results in clear: write https://, or allow_plaintext = true in [network]",
            )
        if parts.username is not None or parts.password is not None:
            self._refuse(
                place, "a user and a password do not belong into a URL: requests are signed with keys"
            )
        if parts.fragment:
            self._refuse(place, "a fragment (#...) is never sent: leave it out")
        self._check_literal(parts, place, allowed)
        return url

    def _check_literal(self, parts: SplitResult, place: str, allowed: tuple[Network, ...]) -> None:
        host = parts.hostname or ""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if _NUMBER.fullmatch(
                host.rstrip(".").rpartition(".")[2]
            ):  # such as 127.1, which some read as an address
                self._refuse(place, f"{host} is neither a name nor an address")
            if len(host.rstrip(".")) > _LONGEST_NAME or not all(
                map(_LABEL.fullmatch, host.removesuffix(".").split("."))
            ):
                self._refuse(
                    place,
                    f"{host} is no name of a host: its parts have 1 to 63 of a-z, 0-9, '-', '_', and all together 253",
                )
            return  # a name's addresses are checked when connections are made
        if not is_allowed(host, allowed):
            self._refuse(place, f"{host} is not a public address: name its network in network.allow")

    def _keys(self, given: Mapping[str, Any], place: str, known: Mapping[str, bytes]) -> Mapping[str, bytes]:
        names = given.get("keys")
        if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
            self._refuse(f"{place}.keys", 'name the keys that sign: keys = ["2026-11"]')
        if len(names) > _MOST_KEYS:
            self._refuse(f"{place}.keys", f"at most {_MOST_KEYS} keys sign a request")
        for each in names:
            if each not in known:
                self._refuse(f"{place}.keys", f"there is no key {each!r} in [keys]")
        return {each: known[each] for each in names}

    def _key(self, key_id: str, given: object) -> bytes:
        place = f"keys.{key_id}"
        if KEY_ID.fullmatch(key_id) is None:
            self._refuse(place, "the id of a key is 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'")
        if not isinstance(given, Mapping) or len(given) != 1 or not {*given} <= {"file", "environment"}:
            self._refuse(
                place,
                'say where the key is, never the key itself: { file = "/run/secrets/key" } or { environment = "HOOK_KEY" }',
            )
        if "file" in given:
            source = self._file_name(given, "file", place)
            try:
                with open(source, encoding="utf-8") as stream:  # noqa: PTH123 (only its beginning)
                    text = stream.read(_LARGEST_KEY_FILE)
            except OSError as error:
                self._refuse(place, f"{source}: {error.strerror}")
            except ValueError:  # its name has a NUL, or its bytes are no UTF-8
                self._refuse(place, f"{source!r}: not a text file")
        else:
            source = self._text(given, "environment", place)
            if (text := self._environment.get(source, "")) == "":
                self._refuse(
                    place,
                    f"the variable {source} is not set, or executor.callback_environment does not name it",
                )
        try:
            return key_from_text(text)
        except ValueError as error:
            self._refuse(place, f"{source}: {error}")

    def _policy(self, given: Mapping[str, Any], place: str) -> Policy:
        backoff = self._table(given, "backoff", place)
        self._only(backoff, f"{place}.backoff", ("initial", "factor", "maximum"))
        requires = given.get("requires", [])
        if not isinstance(requires, list) or not all(isinstance(each, str) for each in requires):
            self._refuse(f"{place}.requires", 'must be a list of labels: ["region=eu"]')
        try:
            return Policy(
                requires=requires,
                max_attempts=given.get("max_attempts"),
                max_runtime=self._duration(given, "max_runtime", place) or _MAX_RUNTIME,
                payload_limit=given.get("payload_limit"),
                result_limit=given.get("result_limit", DEFAULT_LIMIT_BYTES),
                backoff=Backoff(
                    initial=self._duration(backoff, "initial", f"{place}.backoff"),
                    factor=self._number(backoff, "factor", f"{place}.backoff"),
                    maximum=self._duration(backoff, "maximum", f"{place}.backoff"),
                )
                if backoff
                else None,
            )
        except RegistrationError as error:
            self._refuse(place, str(error))

    def _networks(self, given: Mapping[str, Any]) -> tuple[Network, ...]:
        names = given.get("allow", [])
        if not isinstance(names, list):
            self._refuse("network.allow", 'must be a list of networks: ["10.1.0.0/16"]')
        networks: list[Network] = []
        for each in names:
            try:
                networks.append(ipaddress.ip_network(each if isinstance(each, str) else ""))
            except ValueError:
                self._refuse("network.allow", f'{each!r} is no network: write "10.1.0.0/16" or "10.1.2.3/32"')
        return tuple(networks)

    def _duration(self, given: Mapping[str, Any], name: str, place: str) -> timedelta | None:
        if (text := given.get(name)) is None:
            return None
        found = _DURATION.fullmatch(text) if isinstance(text, str) else None
        try:
            duration = float(found[1]) * _UNITS[found[2]] if found else timedelta()
        except OverflowError:
            duration = timedelta()
        if duration <= timedelta():
            self._refuse(f"{place}.{name}", f'{text!r} is no duration: write "500ms", "30s", "5m" or "1h"')
        return duration

    def _number(self, given: Mapping[str, Any], name: str, place: str) -> float | None:
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            self._refuse(f"{place}.{name}", "must be a number")
        return value

    def _flag(self, given: Mapping[str, Any], name: str, place: str) -> bool:
        value = given.get(name, False)
        if not isinstance(value, bool):
            self._refuse(f"{place}.{name}", "must be true or false")
        return value

    def _text(self, given: Mapping[str, Any], name: str, place: str, default: str | None = None) -> str:
        value = given.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            self._refuse(f"{place}.{name}".strip("."), "must be a text")
        return value

    def _file_name(self, given: Mapping[str, Any], name: str, place: str) -> str:
        """Return the name of a file; one that is not absolute is beside the file that names it."""
        value = self._text(given, name, place, "")
        return str(self._path.parent / value) if value else ""

    def _table(self, given: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
        value = given.get(name, {})
        if not isinstance(value, Mapping):
            self._refuse(f"{place}.{name}".strip("."), "must be a table")
        return value

    def _only(self, given: Mapping[str, Any], place: str, known: tuple[str, ...]) -> None:
        for name in given:
            if name not in known:
                self._refuse(f"{place}.{name}".strip("."), f"unknown here: there are {', '.join(known)}")

    def _refuse(self, place: str, problem: str) -> NoReturn:
        raise RegistrationError(f"{self._path}: {place}: {problem}" if place else f"{self._path}: {problem}")
