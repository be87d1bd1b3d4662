"""What the local stack tells each process through its environment: all names are here."""

import json
import os
from datetime import timedelta

from duly_core.config.config_file import config_file, read_config
from duly_core.config.durations import parse_duration
from duly_core.rpc.settings import RpcSettings
from duly_local.moto import AWS_ENVIRONMENT
from duly_local.options import (
    AUTOSCALER,
    CONSOLE,
    FRONTEND,
    HSC,
    SERVER,
    SERVICES,
    STORE_CONSUMER,
    Ports,
    StackOptions,
    has_aws_settings,
)

_LISTEN = {
    FRONTEND: "DULY_FRONTEND_LISTEN",
    STORE_CONSUMER: "DULY_STORE_CONSUMER_LISTEN",
    HSC: "DULY_HSC_LISTEN",
}

EXECUTOR_METRICS = 100
"""An Executor's metrics are this far above its Controller's, where ports are not free ones."""


DRAIN_GRACE = "7s"
"""Of this stack's Executors: the usual 30 s outlast `SupervisionTiming.grace`, after which a worker's whole group is killed,
and killing what still drains would charge its tasks with crashes."""


_AFTER_DRAINING = timedelta(seconds=3)


def drain_time() -> timedelta:
    """How long a worker that was told to stop may still be there."""
    return drain_grace() + _AFTER_DRAINING


def drain_grace() -> timedelta:
    """How long callbacks may run on once their worker was told to stop."""
    section = read_config().get("executor", {})
    grace = os.environ.get("DULY_EXECUTOR_DRAIN_GRACE") or section.get("drain_grace") or DRAIN_GRACE
    try:
        parsed = parse_duration(grace)
    except ValueError:  # the worker itself refuses it, and says why
        parsed = None
    return parsed if isinstance(parsed, timedelta) else timedelta()


ENQUEUE_TIMEOUT = "15s"
"""Of this stack's Store Consumer: the usual 60 s are a long time to look at a task whose message a kill -9 took along.
Its hosts are near and its queues short, so few messages wait that long, and copies of those die at the claim."""


def _is_set_by_the_user(section: str, field: str) -> bool:
    return f"DULY_{section}_{field}".upper() in os.environ or field in read_config().get(section, {})


_JOURNALS = "DULY_EXECUTOR_JOURNAL_FOLDER"
_OF_ANY_WORKER = ("DULY_QUEUE_", "DULY_TIMING_", _JOURNALS)
"""What the user says of these in the environment must be the same in every worker of the stack."""


def joining_environment(options: StackOptions, ports: Ports) -> dict[str, str]:
    """What a worker that somebody adds to the stack must be told, wherever its shell is; `options` as below.

    Nothing here is for one worker only: no address to listen on, no socket. A user's own AWS credentials are not
    here either: they are where the user keeps them.
    """
    inherited = {name: value for name, value in os.environ.items() if name.startswith(_OF_ANY_WORKER)}
    if config_file().exists():
        inherited["DULY_CONFIG"] = str(config_file().absolute())
    return inherited | _worker_environment(options, ports)


def _worker_environment(options: StackOptions, ports: Ports) -> dict[str, str]:
    environment = _queue_environment(options) | {
        "DULY_CONTROLLER_FRONTEND_ADDRESS": ports.address(FRONTEND),
        "DULY_CONTROLLER_HSC_ADDRESS": ports.address(HSC),
    }
    if not _is_set_by_the_user(
        "executor", "journal_folder"
    ):  # what the next `duly up` finds, whatever its ports
        environment[_JOURNALS] = str((options.data_directory / "claim-journals").absolute())
    return environment


def _queue_environment(options: StackOptions) -> dict[str, str]:
    environment = {
        "DULY_TIMING_PROFILE": options.profile,
        "DULY_QUEUE_BACKEND": options.queue,
        "DULY_QUEUE_PREFIX": "duly",
    }
    if options.endpoint_url:
        environment["DULY_QUEUE_ENDPOINT_URL"] = options.endpoint_url
        # boto3 insists on credentials, which an SQS look-alike does not look at; the user's own come first.
        environment |= {name: value for name, value in AWS_ENVIRONMENT.items() if not has_aws_settings()}
    return environment


def service_environment(options: StackOptions, dsn: str, ports: Ports, name: str) -> dict[str, str]:
    """The settings of one process, by name: the server, a service of `SERVICES`, or one of `options.workers`.

    `options.endpoint_url` is the queue's by now, also when that is moto's. A worker is told where the
    queue is, but never where the store is: it has no business there.
    """
    environment = {
        "PYTHONUNBUFFERED": "1",  # lines appear when they are written
        "DULY_TELEMETRY_LOG_FORMAT": "console",
        "DULY_TELEMETRY_METRICS_LISTEN": ports.metrics_address(name),
    }
    if name in (SERVER, CONSOLE):
        environment |= {
            "DULY_CONSOLE_LISTEN": ports.address(CONSOLE),
            "DULY_CONSOLE_FRONTEND_ADDRESS": ports.address(FRONTEND),
        }
    if name == CONSOLE:
        return environment
    if name == AUTOSCALER:
        return environment | _autoscaler_environment(options, dsn, ports)
    if name in (SERVER, *SERVICES):
        roles = SERVICES if name == SERVER else (name,)
        environment |= {_LISTEN[role]: ports.address(role) for role in roles}
        if FRONTEND in roles and options.console and not _is_set_by_the_user("frontend", "public_url"):
            environment["DULY_FRONTEND_PUBLIC_URL"] = console_url(ports)
        environment |= _queue_environment(options)
        environment |= store_environment(options, dsn) | {"DULY_STORE_MIGRATE": "true"}
        if not _is_set_by_the_user("attachments", "store"):
            folder = (options.data_directory / "attachments").absolute()
            environment |= {"DULY_ATTACHMENTS_STORE": "folder", "DULY_ATTACHMENTS_FOLDER": str(folder)}
        if STORE_CONSUMER in roles and not _is_set_by_the_user("store_consumer", "enqueue_timeout"):
            environment["DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT"] = ENQUEUE_TIMEOUT
        if not _is_set_by_the_user("attachments", "store"):
            environment["DULY_ATTACHMENTS_STORE"] = "folder"
        if not _is_set_by_the_user("attachments", "folder"):
            environment["DULY_ATTACHMENTS_FOLDER"] = str((options.data_directory / "attachments").absolute())
        return environment
    environment |= _worker_environment(options, ports)
    environment["DULY_CONTROLLER_HEALTH_LISTEN"] = ports.address(name)
    if options.ports == "usual":
        environment["DULY_CONTROLLER_EXECUTOR_METRICS_PORT"] = str(ports.metrics[name] + EXECUTOR_METRICS)
    if (debug_port := options.debug_port_of(name)) is not None:
        environment["DULY_EXECUTOR_DEBUG_PORT"] = str(debug_port)
    return environment | _executor_environment(options)


def store_environment(options: StackOptions, dsn: str) -> dict[str, str]:
    """Return where a process finds the store. That of the embedded one has its password, whatever shell this is."""
    environment = {"DULY_STORE_DSN": dsn, "DULY_STORE_DSN_FILE": ""}
    return environment if options.dsn is not None else environment | {"DULY_STORE_PASSWORD_FILE": ""}


def console_url(ports: Ports) -> str:
    """Return where people reach the console: addresses of events begin with it."""
    proxy = os.environ.get("DULY_CONSOLE_PUBLIC_URL") or read_config().get("console", {}).get(
        "public_url", ""
    )
    scheme = "https" if RpcSettings.load().cert_file else "http"
    return proxy or f"{scheme}://{ports.address(CONSOLE)}"


_AUTOSCALER_DRAIN = "12s"
"""Its workers have to end before `SupervisionTiming.grace` is over: it is killed then."""
_REPORT_INTERVAL = "2s"
"""Of its workers: the next worker that is needed should not wait for the report of the last one."""


def _autoscaler_environment(options: StackOptions, dsn: str, ports: Ports) -> dict[str, str]:
    """The settings of the autoscaler, and of the workers that it starts, which inherit them."""
    drivers = {name: {"kind": "local", "application": app} for name, app in options.pools.items()}
    environment = (
        _worker_environment(options, ports)
        | {
            "DULY_AUTOSCALER_LISTEN": ports.address(AUTOSCALER),
            "DULY_AUTOSCALER_DRIVERS": json.dumps(drivers),
            "DULY_AUTOSCALER_DRAIN_TIMEOUT": _AUTOSCALER_DRAIN,
        }
        | store_environment(options, dsn)
    )
    if not _is_set_by_the_user("controller", "report_interval"):
        environment["DULY_CONTROLLER_REPORT_INTERVAL"] = _REPORT_INTERVAL
    return environment | _executor_environment(options)


def _executor_environment(options: StackOptions) -> dict[str, str]:
    environment = {}
    if not _is_set_by_the_user("executor", "drain_grace"):
        environment["DULY_EXECUTOR_DRAIN_GRACE"] = DRAIN_GRACE
    numbers = {
        "DULY_CONTROLLER_EXECUTORS": options.executors,
        "DULY_EXECUTOR_PROCESSES": options.processes,
        "DULY_EXECUTOR_SLOTS": options.slots,
    }
    return environment | {variable: str(value) for variable, value in numbers.items() if value is not None}
