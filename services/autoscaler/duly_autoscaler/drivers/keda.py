"""Pools whose workers KEDA starts and ends: it asks for their number (`duly_autoscaler.keda`)."""

from collections.abc import Sequence

from duly_autoscaler.drivers.port import Order
from duly_core.pools.rules import Pool

KEDA = "keda"
"""The driver's name. There is one where `autoscaler.keda_address` is served."""


class KedaDriver:
    """Starts and ends nothing itself. Kubernetes chooses the pods that end; they get SIGTERM, so their workers drain."""

    ends_workers = True

    async def ensure(self, order: Order) -> None:
        """KEDA does it: it reads the plan."""

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:
        """Kubernetes does it."""

    async def close(self) -> None:
        """Nothing is its own."""
