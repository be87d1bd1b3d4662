"""What the parts of a plan cost a month, at list prices or a user's own. Pure, but for the file of list prices."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from duly_cli.capacity.rules import CapacityError, Limits, Load, Plan

NAMES = (
    "vcpu_hour",
    "storage_gb_month",
    "storage_throughput_mb_month",
    "storage_iops_month",
    "sqs_million_requests",
    "zone_transfer_gb",
)
"""Every price that a file has."""
_SIZES = (2, 4, 8, 16, 32, 48, 64, 96)
"""Of machines, in vCPUs."""
_HOURS = 730.0
_SECONDS = _HOURS * 3_600
_MOST_PRICE = 1e12
"""Beyond it a bill would not be a number."""
_GB = 1e9
_MIB = 2**20
_INCLUDED_MB, _INCLUDED_IOPS = 125, 3_000
_COPIES = 2
"""Of each store: a primary and a synchronous standby."""
_HOPS = 4
"""Of a payload: client, Frontend, Postgres, HSC, host."""
_ACROSS = 2 / 3
"""Share of messages that go to another of three zones."""
_IN_A_REQUEST = 10
"""Messages of SQS at most."""
_REQUESTS = 3
"""Of SQS for a message alone: send, receive, delete."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of one region, in one currency."""

    currency: str
    region: str
    of: Mapping[str, float]
    """By name of `NAMES`."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """A part of the bill."""

    name: str
    quantity: str
    a_month: float


def prices_of(found: Any) -> Prices:
    """Return the prices of a file that was read as JSON.

    Raises:
        CapacityError: it is not such a file; the message names the price.
    """
    if not isinstance(found, dict) or not isinstance(found.get("prices"), dict):
        raise CapacityError('it has no object "prices"')
    given = found["prices"]
    if unknown := sorted(given.keys() - set(NAMES)):
        raise CapacityError(f"{unknown[0]!r} is no price: the prices are {', '.join(NAMES)}")
    return Prices(
        _text(found, "currency"), _text(found, "region"), {name: _price(given, name) for name in NAMES}
    )


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name, "")
    if not isinstance(value, str):
        raise CapacityError(f"{name!r} is no text")
    return value


def _price(given: Mapping[str, Any], name: str) -> float:
    if name not in given:
        raise CapacityError(f"the price {name!r} is missing")
    value = given[name]
    if isinstance(value, dict):
        value = value.get("price")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_PRICE:
        raise CapacityError(f"the price {name!r} is no number from 0 to {_MOST_PRICE:,.0f}")
    return float(value)


@cache
def list_prices() -> Prices:
    """Return the list prices that are part of Duly; the file has the source of each."""
    return prices_of(json.loads(files(__package__).joinpath("prices.json").read_text(encoding="utf-8")))


def costs(load: Load, limits: Limits, plan: Plan, prices: Prices) -> list[CostLine]:
    """Return the lines of the bill of a month."""
    of = prices.of
    store_vcpus = machine(plan.postgres_vcpus) * plan.cells * _COPIES
    servers = plan.frontends + plan.store_consumers + plan.hscs
    mean = load.mean_tasks_per_second
    used = mean / load.tasks_per_second  # of what the plan says of the peak
    stored = plan.disk_bytes * _COPIES / _GB
    # what a volume can do is bought beforehand, so for the most; transfer is paid by use
    throughput = max(0.0, plan.wal_bytes_per_s_at_most / _MIB - _INCLUDED_MB) * plan.cells * _COPIES
    iops = max(0.0, plan.transactions_per_s_at_most - _INCLUDED_IOPS) * plan.cells * _COPIES
    wal = plan.wal_bytes_per_s * plan.cells * used * _SECONDS / _GB
    payloads = load.mix.payload * mean * _SECONDS / _GB * _HOPS * _ACROSS
    # a byte across zones is paid where it leaves and where it arrives
    across = (wal + payloads) * 2
    lines = [
        CostLine(
            "Postgres, with a standby", f"{store_vcpus:,} vCPUs", store_vcpus * _HOURS * of["vcpu_hour"]
        ),
        CostLine("servers", f"{servers:,} vCPUs", servers * _HOURS * of["vcpu_hour"]),
        CostLine(
            "hosts",
            f"{plan.hosts:,} x {limits.host_cores:,} vCPUs",
            plan.hosts * limits.host_cores * _HOURS * of["vcpu_hour"],
        ),
        CostLine("storage, with a standby", f"{stored:,.0f} GB", stored * of["storage_gb_month"]),
        CostLine(
            "writes beyond what storage includes",
            f"{throughput:,.0f} MB/s, {iops:,.0f} a second",
            throughput * of["storage_throughput_mb_month"] + iops * of["storage_iops_month"],
        ),
        CostLine(
            "between zones: WAL and payloads", f"{wal + payloads:,.0f} GB", across * of["zone_transfer_gb"]
        ),
    ]
    if load.mix.sqs:
        requests = mean * _SECONDS * _REQUESTS / min(_IN_A_REQUEST, max(1.0, plan.tasks_per_statement)) / 1e6
        lines.append(CostLine("SQS", f"{requests:,.0f} M requests", requests * of["sqs_million_requests"]))
    return lines


def machine(vcpus: int) -> int:
    """Return the least size of a machine that has so many vCPUs; beyond the largest, the number itself."""
    return next((size for size in _SIZES if size >= vcpus), vcpus)
