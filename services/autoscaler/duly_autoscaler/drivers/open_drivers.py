"""Makes the drivers that the settings name."""

from collections.abc import Mapping
from datetime import timedelta

from duly_autoscaler.drivers.command import CommandDriver
from duly_autoscaler.drivers.kubernetes import KubernetesDriver
from duly_autoscaler.drivers.local import LocalDriver
from duly_autoscaler.drivers.port import Driver
from duly_autoscaler.drivers.specs import AwsSpec, CommandSpec, DriverSpec, KubernetesSpec, LocalSpec
from duly_core.errors import SettingsError


def open_drivers(specs: Mapping[str, DriverSpec], drain_timeout: timedelta) -> dict[str, Driver]:
    """Return the drivers by name.

    Raises:
        SettingsError: what a driver needs is not installed, or cannot be used.
    """
    return {name: _open(spec, drain_timeout) for name, spec in specs.items()}


def _open(spec: DriverSpec, drain_timeout: timedelta) -> Driver:
    match spec:
        case LocalSpec():
            return LocalDriver(spec, drain_timeout)
        case CommandSpec():
            return CommandDriver(spec)
        case KubernetesSpec():
            return KubernetesDriver(spec)
        case AwsSpec():
            return _open_aws(spec)


def _open_aws(spec: AwsSpec) -> Driver:
    try:
        from duly_autoscaler.drivers.aws import AwsDriver  # boto3 is loaded where it is needed
    except ImportError as error:
        raise SettingsError(
            f"autoscaler.drivers: the kind aws needs boto3: install duly[sqs], which has it ({error})"
        ) from error
    return AwsDriver.open(spec)
