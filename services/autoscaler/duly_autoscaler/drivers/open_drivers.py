"""Makes the drivers that the settings name."""

from collections.abc import Mapping
from datetime import timedelta

from duly_autoscaler.drivers.command import CommandDriver
from duly_autoscaler.drivers.kubernetes import KubernetesDriver
from duly_autoscaler.drivers.local import LocalDriver
from duly_autoscaler.drivers.port import Driver
from duly_autoscaler.drivers.specs import CommandSpec, DriverSpec, KubernetesSpec, LocalSpec


def open_drivers(specs: Mapping[str, DriverSpec], drain_timeout: timedelta) -> dict[str, Driver]:
    """Return the drivers by name."""
    return {name: _open(spec, drain_timeout) for name, spec in specs.items()}


def _open(spec: DriverSpec, drain_timeout: timedelta) -> Driver:
    match spec:
        case LocalSpec():
            return LocalDriver(spec, drain_timeout)
        case CommandSpec():
            return CommandDriver(spec)
        case KubernetesSpec():
            return KubernetesDriver(spec)
