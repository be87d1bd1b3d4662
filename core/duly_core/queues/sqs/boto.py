"""boto3's clients for SQS: whom they ask, as whom, and how long they wait."""

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config

from duly_core.queues.settings import QueueSettings

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

LONGEST_POLL: Final = 20
"""Seconds; SQS allows no more."""

QUICK_CALLS: Final = 16
"""How many calls that answer at once are under way at the same time."""

POLLS: Final = 256
"""How many long polls are."""

_READ_TIMEOUT: Final = 5
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def boto_clients(settings: QueueSettings) -> tuple["SQSClient", "SQSClient"]:
    """One client for calls that answer at once and one for long polls: they differ in what they wait for."""
    core = botocore.session.Session()
    if urlsplit(settings.endpoint_url).hostname in _THIS_MACHINE:
        # What is here is a look-alike: do not ask the cloud who this machine is.
        core.set_config_variable("metadata_service_num_attempts", 0)
    session = boto3.session.Session(region_name=settings.region, botocore_session=core)
    credentials: dict[str, Any] = {}
    if settings.endpoint_url and session.get_credentials() is None:
        # A look-alike wants a signature, and does not check it.
        credentials = {"aws_access_key_id": "duly", "aws_secret_access_key": "duly"}

    def client(read_timeout: int, connections: int) -> "SQSClient":
        config = Config(
            connect_timeout=2,
            read_timeout=read_timeout,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=connections,
            tcp_keepalive=True,
        )
        return session.client("sqs", endpoint_url=settings.endpoint_url or None, config=config, **credentials)

    return client(_READ_TIMEOUT, QUICK_CALLS), client(LONGEST_POLL + _READ_TIMEOUT, POLLS)
