"""Compares the two backends' cost by the number of hosts. Pure arithmetic and text."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.tables import rows, spread

STORE, SQS = "store", "sqs"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU under load and idle, all processes of a kind together."""

    postgres_us: float
    """A task."""
    server_us: float
    postgres_idle_ms: float
    """A second with nothing to do."""
    server_idle_ms: float
    calls_per_task: dict[str, float] = field(default_factory=dict)
    """Of SQS, by who makes them and operation."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: a number of hosts, first with tasks at a fixed rate, then with nothing to do."""

    backend: str
    servers: int
    lambdas: str
    """`one` for all hosts, or `each` its own."""
    hosts: int
    cost: Cost

    @property
    def case(self) -> tuple[int, str]:
        """What is compared with the other backend over the number of hosts."""
        return self.servers, self.lambdas

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)


CostOf = Callable[[Cost], float]

COSTS: dict[str, CostOf] = {
    "postgres": lambda cost: cost.postgres_us,
    "postgres and server": lambda cost: cost.postgres_us + cost.server_us,
    "postgres idle": lambda cost: cost.postgres_idle_ms,
    "postgres and server idle": lambda cost: cost.postgres_idle_ms + cost.server_idle_ms,
}


def crossing(measured: Sequence[Measured], cost: CostOf) -> int | None:
    """Return from which of the measured numbers of hosts on the store's backend costs more; None: at none of them."""
    ratios = ratios_by_hosts(measured, cost)
    dearer = None
    for hosts in sorted(ratios, reverse=True):
        if ratios[hosts] <= 1:
            break
        dearer = hosts
    return dearer


def ratios_by_hosts(measured: Sequence[Measured], cost: CostOf) -> dict[int, float]:
    """Return the median cost with the store over that with SQS, where both were measured."""
    ratios = {}
    for hosts in sorted({each.hosts for each in measured}):
        store, sqs = (
            [cost(each.cost) for each in measured if (each.hosts, each.backend) == (hosts, backend)]
            for backend in (STORE, SQS)
        )
        if store and sqs:
            ratios[hosts] = statistics.median(store) / statistics.median(sqs)
    return ratios


def report(measured: Sequence[Measured]) -> str:
    """Return a table, the crossings, and the calls of SQS."""
    head = ["servers", "lambdas", "hosts", "backend", "postgres, us a task", "server, us a task"]
    head += ["postgres idle, ms/s", "server idle, ms/s"]
    return "\n".join([rows(head, _rows(measured)), "", *_ratios(measured), "", *_calls(measured)])


def _rows(measured: Sequence[Measured]) -> Iterator[list[str]]:
    keys = dict.fromkeys((*each.case, each.hosts, each.backend) for each in measured)
    for servers, lambdas, hosts, backend in sorted(keys, key=lambda key: (key[0], key[1] != "one", *key[2:])):
        runs = [
            each
            for each in measured
            if (*each.case, each.hosts, each.backend) == (servers, lambdas, hosts, backend)
        ]
        yield [
            str(servers),
            lambdas,
            f"{hosts:,}",
            backend,
            spread([each.cost.postgres_us for each in runs]),
            spread([each.cost.server_us for each in runs]),
            spread([each.cost.postgres_idle_ms for each in runs], 1),
            spread([each.cost.server_idle_ms for each in runs], 1),
        ]


def _ratios(measured: Sequence[Measured]) -> Iterator[str]:
    for case in dict.fromkeys(each.case for each in measured):
        of_case = [each for each in measured if each.case == case]
        for name, cost in COSTS.items():
            ratios = ratios_by_hosts(of_case, cost)
            told = ", ".join(f"{hosts}: {ratio:.2f}" for hosts, ratio in ratios.items())
            dearer = crossing(of_case, cost)
            where = f"from {dearer} hosts on" if dearer else "at no number of hosts"
            yield f"{case[0]} server(s), {case[1]}, {name}: store / sqs by hosts: {told}; the store costs more {where}"


def _calls(measured: Sequence[Measured]) -> Iterator[str]:
    for each in measured:
        if each.cost.calls_per_task:
            told = ", ".join(
                f"{name} {value:.2f}" for name, value in sorted(each.cost.calls_per_task.items())
            )
            yield f"calls of SQS a task, {each.servers} server(s), {each.lambdas}, {each.hosts} hosts: {told}"
