"""Auto Scaling groups of AWS: the autoscaler says how many instances a group has, and which of them end."""

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import AwsSpec
from duly_core.errors import SettingsError
from duly_core.pools.rules import Pool
from duly_core.queues.sqs.threads import AbandonedError, DaemonThreads

_SETTING = "group"
_GROUP = re.compile(r"[^\x00-\x1f\x7f:]{1,255}")
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
_CALLS: Final = 8
"""At a time."""
_FILTER_VALUES: Final = 200
"""EC2 takes no more."""
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    capacity: int
    """What AWS was told to have."""
    instances: frozenset[str]
    """Those that run or start, and were not told to end."""


class AwsDriver:
    """The pool's driver setting `group` names its Auto Scaling group; each instance has one worker.

    The instance of a worker that drains is terminated, so that its worker gets SIGTERM as well, and AWS is told to replace it by none.
    AWS never chooses: it would not know who is idle.
    """

    ends_workers = False

    def __init__(self, groups: Any, machines: Any) -> None:
        self._groups = groups
        self._machines = machines
        self._threads = DaemonThreads("duly-aws", _CALLS)
        self._owed: dict[str, set[str]] = {}
        """By pool: workers that drain, and whose instances AWS has yet to be told of."""

    @classmethod
    def open(cls, spec: AwsSpec) -> "AwsDriver":
        """Load boto3's models and look for credentials; nothing is called yet.

        Raises:
            SettingsError: endpoint or region are unusable.
        """
        core = botocore.session.Session()
        if urlsplit(spec.endpoint_url).hostname in _THIS_MACHINE:
            # What is here is a look-alike: do not ask the cloud who this machine is.
            core.set_config_variable("metadata_service_num_attempts", 0)
        config = Config(
            connect_timeout=2,
            read_timeout=5,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=_CALLS,
        )
        try:
            session = boto3.session.Session(region_name=spec.region, botocore_session=core)
            options: dict[str, Any] = {"endpoint_url": spec.endpoint_url or None, "config": config}
            # their stubs are no dependency of ours
            groups: Any = session.client("autoscaling", **options)
            return cls(groups, session.client("ec2", **options))
        except (BotoCoreError, ValueError) as error:
            raise SettingsError(
                f"autoscaler.drivers: a driver of the kind aws cannot be used: {error}"
            ) from error

    async def ensure(self, order: Order) -> None:
        """Have the group start what is missing. What is too much ends only where no worker reports: it never came, or ended."""
        name = _group_name(order.pool)
        await self._end_owed(order.pool, name)
        group = await self._describe(name)
        if group.capacity < order.desired:
            await self._call(
                name,
                lambda: self._groups.set_desired_capacity(
                    AutoScalingGroupName=name, DesiredCapacity=order.desired, HonorCooldown=False
                ),
            )
        elif group.capacity > order.desired:
            found = await self._instances_of(name, order.workers, group.instances)
            if len(found) == len(
                {*order.workers}
            ):  # else one without a worker may be that of a worker with another name
                without = sorted(group.instances - {*found.values()})
                await self._terminate(name, without[: group.capacity - order.desired])

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:
        """Terminate the instances of these workers; what fails is tried again by `ensure`."""
        self._owed.setdefault(pool.name, set()).update(host_ids)
        await self._end_owed(pool, _group_name(pool))

    async def close(self) -> None:
        """Let go of calls that are under way."""
        self._threads.stop()

    async def _end_owed(self, pool: Pool, name: str) -> None:
        owed = self._owed.get(pool.name)
        if not owed:
            return
        group = await self._describe(name)
        found = await self._instances_of(name, owed, group.instances)
        unknown = owed - found.keys()
        owed -= unknown
        workers: dict[str, set[str]] = {}
        for host_id, instance in found.items():
            workers.setdefault(instance, set()).add(host_id)
        await self._terminate(
            name, sorted(workers), lambda instance: owed.difference_update(workers[instance])
        )
        if unknown:
            raise DriverError(
                f"no instance of the group {name} has the host name of {len(unknown)} workers that drain, such as "
                f"{min(unknown)}"
            )

    async def _describe(self, name: str) -> _Group:
        said = await self._call(
            name, lambda: self._groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        )
        if not said["AutoScalingGroups"]:
            raise DriverError(f"there is no Auto Scaling group {name} in {self._groups.meta.region_name}")
        (group,) = said["AutoScalingGroups"]
        running = frozenset(
            each["InstanceId"]
            for each in group.get("Instances", [])
            if each["LifecycleState"].startswith(("InService", "Pending"))
        )
        return _Group(name, group["DesiredCapacity"], running)

    async def _instances_of(
        self, name: str, host_ids: Collection[str], instances: Collection[str]
    ) -> dict[str, str]:
        """Return the instances of workers by worker, as far as their host names tell: by id, or by private DNS name."""
        hosts = {host_id: host_id.partition(":")[0].partition(".")[0] for host_id in host_ids}
        known = {instance: instance for instance in instances}
        if any(_INSTANCE.fullmatch(host) is None for host in hosts.values()):
            known |= await self._names(name, sorted(instances))
        return {host_id: known[host] for host_id, host in hosts.items() if host in known}

    async def _names(self, name: str, instances: Sequence[str]) -> Mapping[str, str]:
        found = {}
        for start in range(0, len(instances), _FILTER_VALUES):
            pages = await self._call(name, partial(self._pages, instances[start : start + _FILTER_VALUES]))
            for page in pages:
                for reservation in page["Reservations"]:
                    for each in reservation["Instances"]:
                        found[each.get("PrivateDnsName", "").partition(".")[0]] = each["InstanceId"]
        return found

    def _pages(self, instances: Sequence[str]) -> list[Any]:
        asked = [{"Name": "instance-id", "Values": [*instances]}]
        return [*self._machines.get_paginator("describe_instances").paginate(Filters=asked)]

    async def _terminate(
        self, name: str, instances: Sequence[str], done: Callable[[str], None] = lambda _: None
    ) -> None:
        """Terminate instances, and have none come in their place; `done` is told of each.

        Raises:
            DriverError: AWS refused one; others may have been terminated.
        """

        async def terminate(instance: str) -> None:
            await self._call(
                name,
                lambda: self._groups.terminate_instance_in_auto_scaling_group(
                    InstanceId=instance, ShouldDecrementDesiredCapacity=True
                ),
            )
            done(instance)

        for each in await asyncio.gather(*map(terminate, instances), return_exceptions=True):
            if isinstance(each, BaseException):
                raise each

    async def _call(self, name: str, call: Callable[[], _T]) -> _T:
        try:
            return await self._threads.run(call)
        except ClientError as error:
            said = error.response.get("Error", {})
            why = f"{said.get('Code', 'unknown')}: {said.get('Message', '')}"[:500]
            raise DriverError(f"AWS refused {error.operation_name} for the group {name}: {why}") from error
        except BotoCoreError as error:
            raise DriverError(f"AWS cannot be asked for the group {name}: {error}") from error
        except AbandonedError:
            raise DriverError("the driver was closed") from None


def _group_name(pool: Pool) -> str:
    name = pool.driver_settings.get(_SETTING, "")
    if _GROUP.fullmatch(name) is None:
        raise DriverError(f"set the pool's driver setting {_SETTING} to the name of its Auto Scaling group")
    return name
