"""What the settings say of drivers. No I/O."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PLACE = re.compile(r"\{([a-z0-9_]*)\}")
_PLACES = ("pool", "workers", "worker", "labels")


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """Workers as children of the autoscaler."""

    application: str
    """What `duly worker` runs, such as examples.hello:app."""
    arguments: tuple[str, ...] = ()
    """More of its command line, such as ("--slots", "8")."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command that sets the number of workers of something."""

    command: tuple[str, ...]
    """Program and arguments. `{pool}` and `{workers}` stand for the pool's name and the number, others for its driver settings."""
    drain: tuple[str, ...] = ()
    """One that ends a worker that drains: `{worker}` stands for its host. None: `command` with fewer workers ends some."""


@dataclass(frozen=True, slots=True)
class KubernetesSpec:
    """Deployments or StatefulSets of one namespace, by their scale."""

    resource: str = "deployments"
    """`deployments` or `statefulsets`."""
    server: str = ""
    """Of the API, https://HOST:PORT. Empty: as a pod finds it."""
    namespace: str = ""
    """Empty: that of the pod."""
    folder: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Where `token`, `ca.crt` and `namespace` of the service account are."""


@dataclass(frozen=True, slots=True)
class AwsSpec:
    """Auto Scaling groups of one region of AWS."""

    region: str
    endpoint_url: str = ""
    """Of a look-alike, for tests. Empty: AWS."""


DriverSpec = LocalSpec | CommandSpec | KubernetesSpec | AwsSpec


def parse_drivers(text: str) -> Mapping[str, DriverSpec]:
    """Return the drivers by name that a text of JSON says; none for an empty one.

    Raises:
        ValueError: it says something else; names the driver and what is wrong.
    """
    if not text.strip():
        return {}
    try:
        tables = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(tables, dict):
        raise ValueError("must be a table of drivers by name")  # noqa: TRY004 (pydantic expects one kind)
    return {name: _parse(name, table) for name, table in tables.items()}


def _parse(name: str, table: object) -> DriverSpec:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name[:63]!r} is no name of a driver: use 1 to 63 of a-z, 0-9, '_', '-'")
    if not isinstance(table, dict):
        raise ValueError(f"{name}: must be a table")  # noqa: TRY004 (as above)
    rest = dict(table)
    kind = rest.pop("kind", None)
    reader = _KINDS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise ValueError(f"{name}.kind: must be one of {', '.join(_KINDS)}, not {kind!r}")
    spec = reader(name, rest)
    if rest:
        raise ValueError(f"{name}.{min(rest)}: a driver of the kind {kind} has no such key")
    return spec


def _local(name: str, table: dict[str, Any]) -> LocalSpec:
    application = _text(name, table, "application")
    return LocalSpec(application, _words(name, table, "arguments", least=0))


def _command(name: str, table: dict[str, Any]) -> CommandSpec:
    spec = CommandSpec(_words(name, table, "command"), _words(name, table, "drain", least=0))
    if not any("{workers}" in word for word in spec.command):
        raise ValueError(f"{name}.command: no argument has {{workers}}, the number of workers")
    if spec.drain and not any("{worker}" in word for word in spec.drain):
        raise ValueError(f"{name}.drain: no argument has {{worker}}, the host of the worker")
    return spec


def _kubernetes(name: str, table: dict[str, Any]) -> KubernetesSpec:
    said = {
        key: _text(name, table, key) for key in ("resource", "server", "namespace", "folder") if key in table
    }
    spec = KubernetesSpec(**said)
    if spec.resource not in ("deployments", "statefulsets"):
        raise ValueError(f"{name}.resource: must be deployments or statefulsets")
    if spec.server and not spec.server.startswith("https://"):
        raise ValueError(f"{name}.server: must be https://HOST:PORT: the token is sent there")
    return spec


def _aws(name: str, table: dict[str, Any]) -> AwsSpec:
    endpoint_url = _text(name, table, "endpoint_url") if "endpoint_url" in table else ""
    return AwsSpec(_text(name, table, "region"), endpoint_url)


_KINDS: Mapping[str, Callable[[str, dict[str, Any]], DriverSpec]] = {
    "local": _local,
    "command": _command,
    "kubernetes": _kubernetes,
    "aws": _aws,
}


def fill(words: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """Return a command line with values in their places. No value becomes more than a part of one argument.

    Raises:
        ValueError: there is no value for a place.
    """

    def value(found: re.Match[str]) -> str:
        try:
            return values[found[1]]
        except KeyError:
            raise ValueError(
                f"the pool has no driver setting {found[1]!r}, which {found[0]} stands for"
            ) from None

    return [_PLACE.sub(value, word) for word in words]


def _text(name: str, table: dict[str, Any], key: str) -> str:
    said = table.pop(key, None)
    if not isinstance(said, str) or not said:
        raise ValueError(f"{name}.{key}: must be a text")
    return said


def _words(name: str, table: dict[str, Any], key: str, least: int = 1) -> tuple[str, ...]:
    said = table.pop(key, [])
    if not isinstance(said, list) or len(said) < least or not all(isinstance(each, str) for each in said):
        raise ValueError(f"{name}.{key}: must be a list of texts: the program and its arguments, one by one")
    return tuple(said)
