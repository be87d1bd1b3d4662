"""Reads the file that describes HTTP lambdas: URLs, keys, limits. Names every mistake by its place in the file."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from duly.callbacks.outcomes import CompleteLater
from duly.lambdas.policy import Policy
from duly.lambdas.toml_file import POLICY, TomlFile
from duly.webhooks import KEY_ID, key_from_text
from duly_wire.public_addresses import Network, is_allowed

if TYPE_CHECKING:
    from pathlib import Path

_MAX_RUNTIME = timedelta(minutes=1)
_MOST_KEYS = 5
_LARGEST_KEY_FILE = 4_096
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
    completion_timeout: timedelta | None  # None: of a webhook, which nobody completes later
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
    toml = TomlFile(path)
    return _Reader(toml, os.environ).file(toml.read())


class _Reader:
    """Reads one file."""

    def __init__(self, toml: TomlFile, environment: Mapping[str, str]) -> None:
        self._toml = toml
        self._environment = environment

    def file(self, given: Mapping[str, Any]) -> HttpLambdas:
        self._toml.only(given, "", ("owner", "version", "keys", "network", "lambdas", "webhooks"))
        network = self._toml.table(given, "network", "")
        self._toml.only(network, "network", ("allow", "allow_plaintext", "connect_timeout", "ca_file"))
        allowed = self._networks(network)
        plaintext = self._toml.flag(network, "allow_plaintext", "network")
        known = {
            key_id: self._key(key_id, value) for key_id, value in self._toml.table(given, "keys", "").items()
        }
        lambdas = [
            self._lambda(name, value, known, allowed, plaintext=plaintext, section=section)
            for section in ("lambdas", "webhooks")
            for name, value in self._toml.table(given, section, "").items()
        ]
        if not lambdas:
            self._toml.refuse("", 'no lambdas: add [lambdas."mail.send"] with a url')
        return HttpLambdas(
            owner=self._toml.text(given, "owner", "", ""),
            version=self._toml.text(given, "version", "", ""),
            lambdas=tuple(lambdas),
            allowed=allowed,
            connect_timeout=self._toml.duration(network, "connect_timeout", "network")
            or timedelta(seconds=10),
            ca_file=self._toml.file_name(network, "ca_file", "network"),
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
            self._toml.refuse(place, "must be a table with a url")
        is_webhook = section == "webhooks"
        own = () if is_webhook else ("completion_timeout",)
        self._toml.only(given, place, ("url", "keys", "max_runtime", *own, *POLICY))
        max_runtime = self._toml.duration(given, "max_runtime", place)
        return HttpLambda(
            name=name,
            url=self._url(given, place, allowed, plaintext=plaintext),
            keys=self._keys(given, place, known),
            policy=self._toml.policy(given, place, max_runtime or _MAX_RUNTIME),
            completion_timeout=None if is_webhook else self._completion_timeout(given, place),
            is_webhook=is_webhook,
        )

    def _completion_timeout(self, given: Mapping[str, Any], place: str) -> timedelta:
        timeout = self._toml.duration(given, "completion_timeout", place)
        if timeout is None:
            return CompleteLater().timeout
        try:
            return CompleteLater(timeout).timeout
        except ValueError:
            self._toml.refuse(f"{place}.completion_timeout", 'must be from "1s" to "7d"')

    def _url(
        self, given: Mapping[str, Any], place: str, allowed: tuple[Network, ...], *, plaintext: bool
    ) -> str:
        url = self._toml.text(given, "url", place)
        place = f"{place}.url"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            self._toml.refuse(place, "not a URL")
        if _URL_CHARACTERS.fullmatch(url) is None or not parts.hostname or port == 0:
            self._toml.refuse(place, "not a URL: write https://HOST/PATH, at most 2,000 characters of ASCII")
        if parts.scheme not in ("https", "http"):
            self._toml.refuse(place, f"{parts.scheme!r} is no scheme for it: write https://")
        if parts.scheme == "http" and not plaintext:
            self._toml.refuse(
                place,
                "http:// sends payloads and results in clear: write https://, or allow_plaintext = true in [network]",
            )
        if parts.username is not None or parts.password is not None:
            self._toml.refuse(
                place, "a user and a password do not belong into a URL: requests are signed with keys"
            )
        if parts.fragment:
            self._toml.refuse(place, "a fragment (#...) is never sent: leave it out")
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
                self._toml.refuse(place, f"{host} is neither a name nor an address")
            if len(host.rstrip(".")) > _LONGEST_NAME or not all(
                map(_LABEL.fullmatch, host.removesuffix(".").split("."))
            ):
                self._toml.refuse(
                    place,
                    f"{host} is no name of a host: its parts have 1 to 63 of a-z, 0-9, '-', '_', and all together 253",
                )
            return  # a name's addresses are checked when connections are made
        if not is_allowed(host, allowed):
            self._toml.refuse(place, f"{host} is not a public address: name its network in network.allow")

    def _keys(self, given: Mapping[str, Any], place: str, known: Mapping[str, bytes]) -> Mapping[str, bytes]:
        names = given.get("keys")
        if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
            self._toml.refuse(f"{place}.keys", 'name the keys that sign: keys = ["2026-11"]')
        if len(names) > _MOST_KEYS:
            self._toml.refuse(f"{place}.keys", f"at most {_MOST_KEYS} keys sign a request")
        for each in names:
            if each not in known:
                self._toml.refuse(f"{place}.keys", f"there is no key {each!r} in [keys]")
        return {each: known[each] for each in names}

    def _key(self, key_id: str, given: object) -> bytes:
        place = f"keys.{key_id}"
        if KEY_ID.fullmatch(key_id) is None:
            self._toml.refuse(place, "the id of a key is 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'")
        if not isinstance(given, Mapping) or len(given) != 1 or not {*given} <= {"file", "environment"}:
            self._toml.refuse(
                place,
                'say where the key is, never the key itself: { file = "/run/secrets/key" } or { environment = "HOOK_KEY" }',
            )
        if "file" in given:
            source = self._toml.file_name(given, "file", place)
            try:
                with open(source, encoding="utf-8") as stream:  # noqa: PTH123 (only its beginning)
                    text = stream.read(_LARGEST_KEY_FILE)
            except OSError as error:
                self._toml.refuse(place, f"{source}: {error.strerror}")
            except ValueError:  # its name has a NUL, or its bytes are no UTF-8
                self._toml.refuse(place, f"{source!r}: not a text file")
        else:
            source = self._toml.text(given, "environment", place)
            if (text := self._environment.get(source, "")) == "":
                self._toml.refuse(
                    place,
                    f"the variable {source} is not set, or executor.callback_environment does not name it",
                )
        try:
            return key_from_text(text)
        except ValueError as error:
            self._toml.refuse(place, f"{source}: {error}")

    def _networks(self, given: Mapping[str, Any]) -> tuple[Network, ...]:
        names = given.get("allow", [])
        if not isinstance(names, list):
            self._toml.refuse("network.allow", 'must be a list of networks: ["10.1.0.0/16"]')
        networks: list[Network] = []
        for each in names:
            try:
                networks.append(ipaddress.ip_network(each if isinstance(each, str) else ""))
            except ValueError:
                self._toml.refuse(
                    "network.allow", f'{each!r} is no network: write "10.1.0.0/16" or "10.1.2.3/32"'
                )
        return tuple(networks)
