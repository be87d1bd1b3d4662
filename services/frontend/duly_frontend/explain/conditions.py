"""The reasons that hold back a task wherever it stands: gates, its lambda, units of resources, and hosts."""

from dataclasses import dataclass

from duly_core.access.grants import Scope
from duly_core.explain.hosts import Serving, read_host_labels, read_serving
from duly_core.explain.reads import Claims
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.gates import gate_reasons
from duly_frontend.explain.hosts import host_reasons
from duly_frontend.explain.labels import label_reasons
from duly_frontend.explain.lambdas import lambda_reasons
from duly_frontend.explain.units import lacking_units
from duly_wire.queue_names import QueueName
from duly_wire.v1 import explain_pb2


@dataclass(frozen=True, slots=True)
class Conditions:
    """The reasons, by what they are about; in the order in which they must be gone."""

    gates: list[explain_pb2.Reason]
    of_lambda: list[explain_pb2.Reason]
    units: list[explain_pb2.Reason]
    hosts: list[explain_pb2.Reason]
    serving: Serving

    @property
    def reasons(self) -> list[explain_pb2.Reason]:
        """Return all of them."""
        return [*self.gates, *self.of_lambda, *self.units, *self.hosts]


async def read_conditions(store: Store, row: TaskRow, scope: Scope | None, claims: Claims) -> Conditions:
    """Return what holds a task back now; hosts are not looked for if its lambda is gone.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    gates = await gate_reasons(store, row)
    of_lambda = lambda_reasons(row)
    units = await lacking_units(store, row, scope)
    serving = await read_serving(store, row["lambda"])
    hosts = [] if of_lambda else host_reasons(row, serving, claims)
    if hosts and (queue := QueueName.parse(row["lambda"])).labels:
        hosts = label_reasons(row, await read_host_labels(store, queue.base)) or hosts
    return Conditions(gates, of_lambda, units, hosts, serving)
