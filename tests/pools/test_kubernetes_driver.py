"""The driver for Kubernetes, against a scripted API server."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from duly_autoscaler.drivers.kubernetes import KubernetesDriver
from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import KubernetesSpec, parse_drivers
from duly_core.pools.rules import Pool
from duly_local.certificates import make_authority, make_certificate

POOL = Pool(
    name="mail", lambdas=("mail.*",), maximum=9, driver="kube", driver_settings={"deployment": "mail-worker"}
)


@pytest.fixture
def api(tmp_path):
    """An API server that notes requests, and answers as it is told."""
    seen, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(
                (self.path, self.headers["Authorization"], self.headers["Content-Type"], json.loads(body))
            )
            status, said = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_):
            pass

    account = tmp_path / "account"
    account.mkdir()
    make_authority(account)
    make_certificate(account, "api", ["127.0.0.1"])
    (account / "ca.crt").write_bytes((account / "ca.pem").read_bytes())
    (account / "token").write_text("secret\n")
    (account / "namespace").write_text("shop")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "api.pem", account / "api.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    spec = KubernetesSpec(server=f"https://127.0.0.1:{server.server_address[1]}", folder=str(account))
    yield spec, seen, answers
    server.shutdown()
    server.server_close()
    thread.join()


async def test_the_scale_of_the_deployment_is_set_with_the_token_of_the_account(api):
    spec, seen, answers = api
    answers += [(200, {}), (200, {})]

    await KubernetesDriver(spec).ensure(Order(POOL, 5, 2))
    await KubernetesDriver(
        KubernetesSpec(**{**as_fields(spec), "resource": "statefulsets", "namespace": "x"})
    ).ensure(Order(POOL, 0, 0))

    first, second = seen
    assert first == (
        "/apis/apps/v1/namespaces/shop/deployments/mail-worker/scale",
        "Bearer secret",
        "application/merge-patch+json",
        {"spec": {"replicas": 5}},
    )
    assert (second[0], second[3]) == (
        "/apis/apps/v1/namespaces/x/statefulsets/mail-worker/scale",
        {"spec": {"replicas": 0}},
    )


async def test_why_the_api_refuses_is_told_and_the_token_is_not(api):
    spec, _, answers = api
    forbidden = {"kind": "Status", "message": 'deployments.apps "mail-worker" is forbidden'}
    answers += [(403, forbidden), (500, ["?"])]

    for says in ("answered 403 .* is forbidden", "answered 500 .* it gave no reason"):
        with pytest.raises(DriverError, match=says) as refused:
            await KubernetesDriver(spec).ensure(Order(POOL, 5, 2))
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "settings", "says"),
    [
        ({"server": "https://127.0.0.1:1"}, {"deployment": "mail"}, "no answer from https://127.0.0.1:1"),
        ({"folder": "/no/such"}, {"deployment": "mail"}, "service account in /no/such cannot be read"),
        ({"server": ""}, {"deployment": "mail"}, "no pod of Kubernetes"),
        ({}, {}, "driver setting deployment"),
        ({}, {"deployment": "../secrets"}, "driver setting deployment"),
    ],
)
async def test_what_keeps_it_from_asking_is_told(api, monkeypatch, change, settings, says):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    spec, seen, _ = api
    pool = Pool(name="mail", lambdas=("mail.*",), maximum=9, driver="kube", driver_settings=settings)

    with pytest.raises(DriverError, match=says):
        await KubernetesDriver(KubernetesSpec(**{**as_fields(spec), **change})).ensure(Order(pool, 5, 2))

    assert seen == []


def test_a_server_without_tls_and_other_resources_are_refused():
    assert parse_drivers('{"k": {"kind": "kubernetes"}}') == {"k": KubernetesSpec()}
    for wrong in ('"server": "http://x:1"', '"resource": "nodes"'):
        with pytest.raises(ValueError, match="k\\."):
            parse_drivers('{"k": {"kind": "kubernetes", ' + wrong + "}}")


def as_fields(spec):
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}
