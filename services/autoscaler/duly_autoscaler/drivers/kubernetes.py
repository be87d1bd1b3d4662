"""Deployments and StatefulSets in Kubernetes, by the scale subresource: plain HTTPS with the token of the service account."""

import asyncio
import json
import os
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import KubernetesSpec
from duly_core.pools.rules import Pool

_TIMEOUT_S = 10.0
_MOST_READ = 65_536
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SETTING = "deployment"


class KubernetesDriver:
    """The pool's driver setting `deployment` names the Deployment or StatefulSet. Kubernetes chooses the pods that end.

    A pod that ends gets SIGTERM, so its worker drains.
    """

    ends_workers = True

    def __init__(self, spec: KubernetesSpec) -> None:
        self._spec = spec

    async def ensure(self, order: Order) -> None:
        """Set the number of replicas."""
        name = order.pool.driver_settings.get(_SETTING, "")
        if _NAME.fullmatch(name) is None:
            raise DriverError(
                f"set the pool's driver setting {_SETTING} to the name of its {self._spec.resource}"
            )
        await asyncio.to_thread(self._scale, name, order.desired)

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:
        """Kubernetes does it."""

    async def close(self) -> None:
        """Nothing is its own."""

    def _scale(self, name: str, replicas: int) -> None:
        spec = self._spec
        folder = Path(spec.folder)
        server = spec.server or _server_of_pod()
        try:
            # read for each call: Kubernetes renews the token
            token = (folder / "token").read_text(encoding="utf-8").strip()
            namespace = spec.namespace or (folder / "namespace").read_text(encoding="utf-8").strip()
            context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        except (OSError, ssl.SSLError) as error:
            raise DriverError(f"the service account in {folder} cannot be read: {error}") from error
        path = f"/apis/apps/v1/namespaces/{namespace}/{spec.resource}/{name}/scale"
        where = urlsplit(server)
        connection = HTTPSConnection(
            where.hostname or "", where.port or 443, timeout=_TIMEOUT_S, context=context
        )
        try:
            connection.request(
                "PATCH",
                path,
                json.dumps({"spec": {"replicas": replicas}}),
                {
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/merge-patch+json",
                    "Accept": "application/json",
                },
            )
            with connection.getresponse() as answer:
                said = answer.read(_MOST_READ)
        except (OSError, HTTPException) as error:
            raise DriverError(f"no answer from {server}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status not in (200, 201):
            raise DriverError(
                f"{server} answered {answer.status} to a change of {namespace}/{name}: {_message(said)}"
            )


def _server_of_pod() -> str:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
    )
    if not host:
        raise DriverError("this is no pod of Kubernetes: set `server` of the driver to https://HOST:PORT")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _message(said: bytes) -> str:
    """Return why the API refused, in its words."""
    with suppress(ValueError):
        status = json.loads(said)
        if isinstance(status, dict) and isinstance(status.get("message"), str):
            return str(status["message"])[:300]
    return "it gave no reason"
