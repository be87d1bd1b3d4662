"""What clients are told when TLS fails, and what they do when their certificates are replaced."""

import asyncio
from datetime import timedelta

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

import duly
from duly_cli.__main__ import app
from duly_core.errors import SettingsError
from duly_core.rpc.channel import open_channel
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_local.certificates import make_authority, make_certificate
from duly_wire.credentials import TokenFile
from duly_wire.v1 import access_pb2, access_pb2_grpc, frontend_pb2, frontend_pb2_grpc

PATIENCE = timedelta(seconds=20)
FAILS_SOON = timedelta(seconds=1)


class Greeter(access_pb2_grpc.AccessServiceServicer):
    """Answers, and says nothing."""

    async def GetAccess(self, _request, _context):  # noqa: N802 (the wire's name)
        return access_pb2.GetAccessResponse(principal="somebody")


class Taker(frontend_pb2_grpc.FrontendServiceServicer):
    """Takes each task."""

    async def Schedule(self, request, _context):  # noqa: N802
        results = [frontend_pb2.ScheduleResult(task_id=task.task_id) for task in request.tasks]
        return frontend_pb2.ScheduleResponse(results=results)


def make_files(folder):
    make_authority(folder)
    make_certificate(folder, "server", ["127.0.0.1"])
    make_certificate(folder, "shop", [])
    return folder


@pytest.fixture
def folder(tmp_path):
    return make_files(tmp_path)


@pytest.fixture
def others(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("others"))


def of_server(folder, name="server", **more):
    files = {"cert_file": str(folder / f"{name}.pem"), "key_file": str(folder / f"{name}.key")}
    ca_file = str(folder / "ca.pem")
    return RpcSettings(shutdown_grace=timedelta(0), ca_file=ca_file, **files, **more)


def set_environment(monkeypatch, folder, name=""):
    monkeypatch.setenv("DULY_RPC_CA_FILE", str(folder / "ca.pem"))
    if name:
        monkeypatch.setenv("DULY_RPC_CERT_FILE", str(folder / f"{name}.pem"))
        monkeypatch.setenv("DULY_RPC_KEY_FILE", str(folder / f"{name}.key"))


async def serve(settings, listen="127.0.0.1:0"):
    server = RpcServer(listen, [Greeter(), Taker()], settings)
    return server, await server.start()


async def complaint(address):
    async with duly.AsyncClient(address, unreachable_after=FAILS_SOON) as client:
        with pytest.raises(duly.UnavailableError) as failed:
            await client.access()
    return str(failed.value)


async def test_a_client_without_tls_is_told_to_use_it(folder):
    server, address = await serve(of_server(folder))

    assert "if the server has TLS, set DULY_RPC_CA_FILE" in await complaint(address)
    await server.stop()


async def test_a_client_with_tls_is_told_that_the_server_has_none(folder, monkeypatch):
    server, address = await serve(RpcSettings(shutdown_grace=timedelta(0)))
    set_environment(monkeypatch, folder)

    assert "the server has no TLS: unset DULY_RPC_CA_FILE" in await complaint(address)
    await server.stop()


async def test_a_client_that_trusts_another_authority_is_told_which_file_to_change(
    folder, others, monkeypatch
):
    server, address = await serve(of_server(folder))
    set_environment(monkeypatch, others)

    assert "DULY_RPC_CA_FILE must name the authority" in await complaint(address)
    await server.stop()


async def test_a_certificate_of_other_hosts_is_told(folder, monkeypatch):
    make_certificate(folder, "elsewhere", ["example.org"])
    server, address = await serve(of_server(folder, "elsewhere"))
    set_environment(monkeypatch, folder)

    assert "the server's certificate is for other hosts" in await complaint(address)
    await server.stop()


async def test_an_expired_certificate_is_told(folder, monkeypatch):
    make_certificate(folder, "old", ["127.0.0.1"], timedelta(seconds=-1))
    server, address = await serve(of_server(folder, "old"))
    set_environment(monkeypatch, folder)

    assert "has expired: renew it" in await complaint(address)
    await server.stop()


async def test_a_client_without_the_certificate_that_is_asked_for_is_told(folder, monkeypatch):
    server, address = await serve(of_server(folder, client_certificates="required"))
    set_environment(monkeypatch, folder)

    assert "if it asks for certificates, set DULY_RPC_CERT_FILE" in await complaint(address)
    await server.stop()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"DULY_RPC_CA_FILE": "/nowhere/ca.pem"}, "DULY_RPC_CA_FILE: /nowhere/ca.pem cannot be read"),
        ({"DULY_RPC_CERT_FILE": "server.pem", "DULY_RPC_KEY_FILE": ""}, "needs DULY_RPC_KEY_FILE"),
        (
            {"DULY_RPC_CERT_FILE": "server.pem", "DULY_RPC_KEY_FILE": "shop.key"},
            "not a certificate and its key",
        ),
        ({"DULY_RPC_TOKEN_FILE": "nothing.token"}, "nothing.token cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_told_when_the_client_is_made(folder, monkeypatch, files, message):
    monkeypatch.chdir(folder)
    set_environment(monkeypatch, folder)
    for name, value in files.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(duly.CredentialsError, match=message):
        duly.AsyncClient("127.0.0.1:1")


@pytest.mark.parametrize("wrong", [{"token_file": "/nowhere/token"}, {"ca_file": "/nowhere/ca.pem"}])
def test_a_service_tells_which_of_its_files_cannot_be_used(wrong):
    with pytest.raises(SettingsError, match="cannot be read"):
        open_channel("127.0.0.1:1", RpcSettings(**wrong))


@pytest.mark.parametrize(
    "address",
    [
        "duly.example.org:7401",
        "10.0.0.7:7401",
        "ipv4:127.0.0.1:1,10.0.0.7:1",
        "dns:///a.example.org:1",
        "[2001:db8::1]:7401",
    ],
)
async def test_a_token_is_not_sent_to_another_machine_without_tls(address, monkeypatch, tmp_path):
    with pytest.raises(duly.CredentialsError, match="without TLS"):
        duly.AsyncClient(address, token="duly_a_b")
    (tmp_path / "token").write_text("duly_a_b")
    if not address.startswith(("ipv4", "dns")):
        with pytest.raises(SettingsError, match="without TLS"):
            open_channel(address, RpcSettings(token_file=str(tmp_path / "token")))

    monkeypatch.setenv("DULY_RPC_ALLOW_PLAINTEXT", "true")
    assert duly.AsyncClient(address, token="duly_a_b").address == address


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/x", "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:1"],
)
def test_a_token_may_be_sent_to_this_machine_without_tls(address):
    assert duly.AsyncClient(address, token="duly_a_b").address == address


def replace(folder, others, *names):
    for name in names:
        fresh = folder / f".{name}.new"
        fresh.write_bytes((others / name).read_bytes())
        fresh.replace(folder / name)


ALL = ("ca.pem", "server.pem", "server.key", "shop.pem", "shop.key")


@pytest.fixture
def looks_often(monkeypatch):
    monkeypatch.setattr("duly_wire.tls_files._LOOK_EVERY_S", 0.01)


async def test_an_asyncio_client_connects_with_files_that_were_replaced(
    folder, others, monkeypatch, looks_often
):
    set_environment(monkeypatch, folder, "shop")
    server, address = await serve(of_server(folder, client_certificates="required"))
    async with duly.AsyncClient(address) as client:
        assert (await client.access()).principal == "somebody"

        await server.stop()
        replace(folder, others, *ALL)
        server, _ = await serve(of_server(folder, client_certificates="required"), address)

        assert (await client.access()).principal == "somebody"
        await client.schedule("mail.send")
    await server.stop()


async def test_a_blocking_client_connects_with_files_that_were_replaced(
    folder, others, monkeypatch, looks_often
):
    set_environment(monkeypatch, folder, "shop")
    server, address = await serve(of_server(folder, client_certificates="required"))
    client = await asyncio.to_thread(duly.Client, address)
    await asyncio.to_thread(client.schedule, "mail.send")

    await server.stop()
    replace(folder, others, *ALL)
    server, _ = await serve(of_server(folder, client_certificates="required"), address)

    for _ in range(3):
        await asyncio.to_thread(client.schedule, "mail.send")
    assert (await asyncio.to_thread(client.access)).principal == "somebody"
    await asyncio.to_thread(client.close)
    await server.stop()


async def test_several_frontends_are_called_with_files_that_were_replaced(
    folder, others, monkeypatch, looks_often
):
    set_environment(monkeypatch, folder, "shop")
    settings = of_server(folder, client_certificates="required")
    served = [await serve(settings) for _ in range(2)]
    async with duly.AsyncClient(",".join(address for _, address in served)) as client:
        assert (await client.access()).principal == "somebody"

        replace(folder, others, *ALL)
        for place, (server, address) in enumerate(served):
            await server.stop()
            served[place] = await serve(of_server(folder, client_certificates="required"), address)

        for _ in range(4):
            assert (await client.access()).principal == "somebody"
    for server, _ in served:
        await server.stop()


async def test_a_services_channel_connects_with_files_that_were_replaced(folder, others, looks_often):
    server, address = await serve(of_server(folder, client_certificates="required"))
    channel = open_channel(address, of_server(folder, "shop"))
    stub = health_pb2_grpc.HealthStub(channel)
    await stub.Check(health_pb2.HealthCheckRequest())

    await server.stop()
    replace(folder, others, *ALL)
    server, _ = await serve(of_server(folder, client_certificates="required"), address)

    async with asyncio.timeout(PATIENCE.total_seconds()):
        while True:
            try:
                await stub.Check(health_pb2.HealthCheckRequest())
            except grpc.aio.AioRpcError:
                continue
            break
    await channel.close()
    await server.stop()


async def test_files_that_do_not_fit_each_other_are_not_taken(folder, others, monkeypatch, looks_often):
    set_environment(monkeypatch, folder, "shop")
    server, address = await serve(of_server(folder, client_certificates="required"))
    async with duly.AsyncClient(address) as client:
        await client.access()

        replace(folder, others, "shop.pem")
        files = client.credentials.tls
        for _ in range(5):
            assert (await client.access()).principal == "somebody"

        assert files.generation == 0
    await server.stop()


async def test_calls_under_way_end_on_the_old_connection(folder, monkeypatch, looks_often):
    set_environment(monkeypatch, folder)
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(access_pb2_grpc.AccessServiceServicer):
        async def GetAccess(self, _request, _context):  # noqa: N802
            begun.set()
            await go_on.wait()
            return access_pb2.GetAccessResponse(principal="slow")

    server = RpcServer("127.0.0.1:0", [Slow(), Taker()], of_server(folder))
    address = await server.start()
    async with duly.AsyncClient(address) as client:
        under_way = asyncio.create_task(client.access())
        await begun.wait()
        replace(folder, make_again(folder), "ca.pem")
        tls = client.credentials.tls
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while tls.refresh() == 0:
                await asyncio.to_thread(tls.refresh)
        await client.schedule("mail.send")  # over the new connection
        go_on.set()

        assert (await under_way).principal == "slow"
    await server.stop()


def make_again(folder):
    """The same files, written anew."""
    again = folder / "again"
    again.mkdir()
    for name in ALL:
        (again / name).write_bytes((folder / name).read_bytes())
    return again


def test_a_token_is_read_again_when_its_file_changes(tmp_path):
    file = tmp_path / "token"
    file.write_text("duly_a_first\n")
    token = TokenFile(file)
    assert token.read() == "duly_a_first"

    (tmp_path / "new").write_text("duly_b_second\n")
    (tmp_path / "new").replace(file)

    assert token.read() == "duly_b_second"


async def test_health_is_asked_under_tls_and_also_where_this_machine_has_none(folder):
    servers = [await serve(of_server(folder)), await serve(RpcSettings(shutdown_grace=timedelta(0)))]
    environment = {"DULY_RPC_CA_FILE": str(folder / "ca.pem")}
    for server, address in servers:
        await server.set_serving(serving=True)

        asked = await asyncio.to_thread(CliRunner().invoke, app, ["health", address], env=environment)

        assert (asked.exit_code, asked.stdout) == (0, f"{address}: SERVING\n")
        await server.stop()


async def test_health_tells_what_is_wrong_with_tls(folder, others):
    server, address = await serve(of_server(folder))

    asked = await asyncio.to_thread(
        CliRunner().invoke, app, ["health", address], env={"DULY_RPC_CA_FILE": str(others / "ca.pem")}
    )

    assert asked.exit_code == 1
    assert "not of an authority that is trusted here" in asked.stderr
    await server.stop()
