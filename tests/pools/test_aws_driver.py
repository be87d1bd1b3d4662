"""The driver for AWS Auto Scaling, against moto's server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from duly_autoscaler.drivers.aws import AwsDriver
from duly_autoscaler.drivers.open_drivers import open_drivers
from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import AwsSpec, parse_drivers
from duly_core.errors import SettingsError
from duly_core.pools.rules import Pool

REGION = "eu-west-1"
GROUP = "duly-mail"
POOL = Pool(name="mail", lambdas=("mail.*",), maximum=9, driver="aws", driver_settings={"group": GROUP})


class Cloud:
    """An account with one Auto Scaling group."""

    def __init__(self, endpoint: str) -> None:
        self.spec = AwsSpec(REGION, endpoint)
        keys = {"aws_access_key_id": "duly", "aws_secret_access_key": "duly"}
        client = boto3.session.Session(region_name=REGION, **keys).client
        self.groups = client("autoscaling", endpoint_url=endpoint)
        self.machines = client("ec2", endpoint_url=endpoint)

    def make_group(self, instances: int) -> None:
        self.groups.create_launch_configuration(
            LaunchConfigurationName=GROUP, ImageId="ami-12c6146b", InstanceType="t3.micro"
        )
        self.groups.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchConfigurationName=GROUP,
            MinSize=1,
            MaxSize=5,
            DesiredCapacity=instances,
            AvailabilityZones=[f"{REGION}a"],
        )

    def remove_group(self) -> None:
        self.groups.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
        self.groups.delete_launch_configuration(LaunchConfigurationName=GROUP)

    @property
    def capacity(self) -> int:
        return int(self._group()["DesiredCapacity"])

    @property
    def instances(self) -> list[str]:
        return sorted(each["InstanceId"] for each in self._group()["Instances"])

    def _group(self) -> dict:
        (group,) = self.groups.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])[
            "AutoScalingGroups"
        ]
        return group

    def worker(self, instance: str) -> str:
        """The id of a worker's host whose name is EC2's private DNS name."""
        (reservation,) = self.machines.describe_instances(InstanceIds=[instance])["Reservations"]
        return f"{reservation['Instances'][0]['PrivateDnsName']}:4711:1f0c8a55"


@pytest.fixture(scope="module")
def account(moto_endpoint) -> Iterator[Cloud]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "duly")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "duly")
        yield Cloud(moto_endpoint)


@pytest.fixture
def cloud(account) -> Iterator[Cloud]:
    account.make_group(3)
    yield account
    account.remove_group()


@pytest.fixture
async def driver(cloud):
    opened = open_drivers({"aws": cloud.spec}, timedelta())["aws"]
    yield opened
    await opened.close()


async def test_what_is_missing_is_started_and_a_repeat_changes_nothing(cloud, driver):
    before = cloud.instances

    await driver.ensure(Order(POOL, 5, 2))
    first = cloud.instances
    await driver.ensure(Order(POOL, 5, 0))

    assert (len(before), cloud.capacity) == (3, 5)
    assert cloud.instances == first
    assert {*before} < {*first}


@pytest.mark.parametrize("names", ["private DNS names", "instance ids"])
async def test_the_instances_of_workers_that_drain_end_and_are_not_replaced(cloud, driver, names):
    _, chosen, other = cloud.instances
    host = {"private DNS names": cloud.worker, "instance ids": lambda each: f"{each}.compute.internal:1:2"}[
        names
    ]

    await driver.drain(POOL, [host(chosen)])
    await driver.ensure(Order(POOL, 2, 0, (host(other), host(chosen))))

    assert cloud.capacity == 2
    assert other in cloud.instances
    assert chosen not in cloud.instances


async def test_of_too_many_instances_those_without_a_worker_end(cloud, driver):
    first, _, third = cloud.instances

    await driver.ensure(Order(POOL, 2, 0, (cloud.worker(first), cloud.worker(third))))

    assert (cloud.capacity, cloud.instances) == (2, [first, third])


async def test_no_instance_ends_while_a_worker_is_on_none_that_is_known(cloud, driver):
    before = cloud.instances

    await driver.ensure(Order(POOL, 1, 0, ("elsewhere:1:2", cloud.worker(before[0]))))
    with pytest.raises(DriverError, match=r"no instance of the group duly-mail .* such as elsewhere:1:2"):
        await driver.drain(POOL, ["elsewhere:1:2"])

    assert (cloud.capacity, cloud.instances) == (3, before)


async def test_an_instance_that_could_not_be_ended_ends_later(cloud, driver):
    ended, refused, other = cloud.instances
    workers = [cloud.worker(ended), cloud.worker(refused)]
    operation = "TerminateInstanceInAutoScalingGroup"

    with (
        refusing(driver, operation, lambda body: refused in str(body)),
        pytest.raises(DriverError, match=f"refused {operation} .* no more"),
    ):
        await driver.drain(POOL, workers)
    before = cloud.instances
    await driver.ensure(Order(POOL, 3, 1))

    assert before == sorted([refused, other])
    assert not {ended, refused} & {*cloud.instances}
    assert (cloud.capacity, len(cloud.instances)) == (3, 3)


@contextmanager
def refusing(driver, operation, of=lambda _: True):
    """AWS refuses an operation, as it does where a limit of the group forbids it."""
    events = driver._groups.meta.events
    name = f"before-send.autoscaling.{operation}"

    def refuse(request, **_):
        if not of(request.body):
            return None
        said = b"<ErrorResponse><Error><Code>ValidationError</Code><Message>no more</Message></Error></ErrorResponse>"
        return AWSResponse(request.url, 400, {}, SimpleNamespace(stream=lambda: [said]))

    events.register(name, refuse)
    try:
        yield
    finally:
        events.unregister(name, refuse)


@pytest.mark.parametrize(
    ("settings", "desired", "says"),
    [
        ({}, 2, "set the pool's driver setting group"),
        ({"group": "a:b"}, 2, "set the pool's driver setting group"),
        ({"group": "moon"}, 2, f"there is no Auto Scaling group moon in {REGION}"),
        (
            {"group": GROUP},
            6,
            "AWS refused SetDesiredCapacity for the group duly-mail: ValidationError: no more",
        ),
    ],
)
async def test_why_aws_cannot_do_it_is_told(cloud, driver, settings, desired, says):
    pool = Pool(name="mail", lambdas=("mail.*",), maximum=9, driver="aws", driver_settings=settings)

    with refusing(driver, "SetDesiredCapacity"), pytest.raises(DriverError, match=says):
        await driver.ensure(Order(pool, desired, 0))

    assert cloud.capacity == 3


async def test_an_endpoint_that_nobody_serves_is_told():
    driver = AwsDriver.open(AwsSpec(REGION, "http://127.0.0.1:1"))

    with pytest.raises(DriverError, match="AWS cannot be asked for the group duly-mail"):
        await driver.ensure(Order(POOL, 1, 1))

    await driver.close()


def test_a_driver_of_aws_needs_a_region():
    assert parse_drivers('{"a": {"kind": "aws", "region": "eu-west-1"}}') == {"a": AwsSpec("eu-west-1")}
    with pytest.raises(ValueError, match=r"a\.region"):
        parse_drivers('{"a": {"kind": "aws"}}')


def test_without_boto3_the_start_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duly_autoscaler.drivers.aws", None)

    with pytest.raises(SettingsError, match=r"install duly\[sqs\]"):
        open_drivers({"aws": AwsSpec(REGION)}, timedelta())
