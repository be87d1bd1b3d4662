"""Servers and channels with TLS: who is let in, under which name, and what happens when files change."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.errors import SettingsError
from duly_core.rpc.certificate_expiry import expires_at
from duly_core.rpc.channel import open_channel
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_local.certificates import make_authority, make_certificate
from duly_local.ports import free_ports
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc

CHECK = health_pb2.HealthCheckRequest()


@pytest.fixture
def folder(tmp_path):
    make_authority(tmp_path)
    make_certificate(tmp_path, "server", ["localhost", "127.0.0.1"])
    make_certificate(tmp_path, "shop", [])
    return tmp_path


def rpc_of(folder, name="", **more):
    files = (
        {"cert_file": str(folder / f"{name}.pem"), "key_file": str(folder / f"{name}.key")} if name else {}
    )
    return RpcSettings(ca_file=str(folder / "ca.pem"), shutdown_grace=timedelta(0), **files, **more)


async def check(address, settings):
    channel = open_channel(address, settings)
    try:
        return await health_pb2_grpc.HealthStub(channel).Check(CHECK, timeout=5)
    finally:
        await channel.close()


async def test_a_client_of_the_authority_is_served(folder):
    server = RpcServer("127.0.0.1:0", [], rpc_of(folder, "server"))
    address = await server.start()
    assert (await check(address, rpc_of(folder))).status
    with pytest.raises(grpc.aio.AioRpcError):  # no TLS
        await check(address, RpcSettings())
    await server.stop()


async def test_who_is_asked_for_a_certificate_needs_one_of_the_authority(folder, tmp_path_factory):
    server = RpcServer("127.0.0.1:0", [], rpc_of(folder, "server", client_certificates="required"))
    address = await server.start()
    assert (await check(address, rpc_of(folder, "shop"))).status
    with pytest.raises(grpc.aio.AioRpcError):
        await check(address, rpc_of(folder))
    other = tmp_path_factory.mktemp("other")
    make_authority(other)
    make_certificate(other, "shop", [])
    stranger = rpc_of(other, "shop").model_copy(update={"ca_file": str(folder / "ca.pem")})
    with pytest.raises(grpc.aio.AioRpcError):
        await check(address, stranger)
    await server.stop()


async def test_a_server_of_another_authority_is_not_believed(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    make_authority(other)
    make_certificate(other, "server", ["127.0.0.1"])
    server = RpcServer("127.0.0.1:0", [], rpc_of(other, "server"))
    address = await server.start()
    with pytest.raises(grpc.aio.AioRpcError):
        await check(address, rpc_of(folder))
    await server.stop()


async def test_a_new_certificate_is_shown_without_a_restart(folder, tmp_path_factory):
    settings = rpc_of(folder, "server")
    server = RpcServer("127.0.0.1:0", [], settings)
    address = await server.start()
    fresh = tmp_path_factory.mktemp("fresh")
    make_authority(fresh)
    make_certificate(fresh, "server", ["127.0.0.1"])
    for name in ("server.pem", "server.key"):
        (folder / name).write_bytes((fresh / name).read_bytes())
    assert (await check(address, rpc_of(fresh))).status
    with pytest.raises(grpc.aio.AioRpcError):
        await check(address, rpc_of(folder))
    await server.stop()


async def test_the_certificates_name_is_the_principal(folder, store):
    seen = []

    class Servicer(frontend_pb2_grpc.FrontendServiceServicer):
        async def ListTasks(self, _request, _context):  # noqa: N802
            from duly_core.access.current import current_access

            seen.append(current_access().principal)
            return frontend_pb2.ListTasksResponse()

    await access.add_grants(store, [Grant("shop", Role.CLIENT, "mail*")])
    server = RpcServer(
        "127.0.0.1:0",
        [Servicer()],
        rpc_of(folder, "server", client_certificates="required"),
        authorizer=Authorizer(AccessCache(store)),
    )
    address = await server.start()
    channel = open_channel(address, rpc_of(folder, "shop"))
    await frontend_pb2_grpc.FrontendServiceStub(channel).ListTasks(frontend_pb2.ListTasksRequest())
    assert seen == ["shop"]
    await channel.close()
    await server.stop()


async def test_calls_on_a_connection_whose_certificate_has_expired_are_refused(folder, store):
    clock = [datetime.now(UTC)]

    class Servicer(frontend_pb2_grpc.FrontendServiceServicer):
        async def ListTasks(self, _request, _context):  # noqa: N802
            return frontend_pb2.ListTasksResponse()

    await access.add_grants(store, [Grant("shop", Role.CLIENT, "mail*")])
    server = RpcServer(
        "127.0.0.1:0",
        [Servicer()],
        rpc_of(folder, "server", client_certificates="required"),
        authorizer=Authorizer(AccessCache(store), now=lambda: clock[0]),
    )
    address = await server.start()
    channel = open_channel(address, rpc_of(folder, "shop"))
    stub = frontend_pb2_grpc.FrontendServiceStub(channel)
    certificate = x509.load_pem_x509_certificate((folder / "shop.pem").read_bytes())

    clock[0] = certificate.not_valid_after_utc - timedelta(seconds=1)
    await stub.ListTasks(frontend_pb2.ListTasksRequest())
    clock[0] = certificate.not_valid_after_utc
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ListTasks(frontend_pb2.ListTasksRequest())

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "renew the certificate" in (refused.value.details() or "")
    await channel.close()
    await server.stop()


async def test_a_certificate_that_cannot_be_read_has_expired():
    assert expires_at({}) < datetime.now(UTC)
    assert expires_at({"x509_pem_cert": [b"no certificate"]}) < datetime.now(UTC)


async def test_strangers_are_not_served_without_tls_unless_told_so():
    with pytest.raises(SettingsError, match="allow_plaintext"):
        await RpcServer("0.0.0.0:0", [], RpcSettings()).start()
    server = RpcServer("0.0.0.0:0", [], RpcSettings(allow_plaintext=True))
    await server.start()
    await server.stop()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cert_file": "/nowhere/a.pem", "key_file": "/nowhere/a.key"}, "cannot be read"),
        ({"cert_file": "/nowhere/a.pem"}, "needs rpc.key_file"),
    ],
)
async def test_an_unusable_certificate_is_told_at_the_start(settings, message):
    with pytest.raises(SettingsError, match=message):
        await RpcServer("127.0.0.1:0", [], RpcSettings(**settings)).start()


async def test_health_alone_is_served_without_tls_on_an_address_of_its_own(folder):
    (port,) = free_ports(1)
    health = f"127.0.0.1:{port}"
    server = RpcServer("127.0.0.1:0", [_Frontend()], rpc_of(folder, "server"), health_listen=health)
    address = await server.start()

    before = (await check(health, RpcSettings())).status
    await server.set_serving(serving=True)

    assert before == health_pb2.HealthCheckResponse.NOT_SERVING
    assert (await check(health, RpcSettings())).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError):  # calls need TLS still
        await check(address, RpcSettings())
    async with grpc.aio.insecure_channel(health) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await frontend_pb2_grpc.FrontendServiceStub(channel).GetTask(
                frontend_pb2.GetTaskRequest(), timeout=5
            )
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await server.stop()
    with pytest.raises(grpc.aio.AioRpcError):
        await check(health, RpcSettings())


async def test_strangers_are_asked_nothing_about_health_unless_it_is_allowed(folder):
    strangers = "0.0.0.0:0"
    server = RpcServer("127.0.0.1:0", [], RpcSettings(), health_listen=strangers)
    with pytest.raises(SettingsError, match=r"rpc\.allow_plaintext"):
        await server.start()
    await server.stop()

    allowed = RpcServer(
        "127.0.0.1:0", [], rpc_of(folder, "server", allow_plaintext_health=True), health_listen=strangers
    )
    await allowed.start()
    await allowed.stop()


class _Frontend(frontend_pb2_grpc.FrontendServiceServicer):
    """Serves nothing; its name is what counts."""
