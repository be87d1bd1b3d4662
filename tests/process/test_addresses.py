"""Addresses in settings: what is taken, and what is said of those that gRPC would take for something else."""

import pytest

from duly_core.config.addresses import check_listen, check_optional_listen, check_peers
from duly_core.errors import SettingsError
from duly_core.rpc.settings import RpcSettings
from duly_frontend.settings import FrontendSettings


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:7401", "0.0.0.0:0", "localhost:7401", "[::]:7401", "my_host:1", "unix:/run/duly.sock"],
)
def test_an_address_to_serve_on_has_a_host_and_a_port_or_is_a_socket(address):
    assert check_listen(address) == check_optional_listen(address) == address


@pytest.mark.parametrize(
    "address",
    [
        7401,
        "7401",
        ":7401",
        "localhost",
        "localhost:",
        "::1:7401",
        "localhost:99999",
        "http://localhost:7401",
        "a..b:7401",
        f"{'a' * 64}.example.com:7401",
        "a\0b:7401",
        "unix:",
    ],
)
def test_what_cannot_be_served_on_is_refused_with_what_to_write(address):
    with pytest.raises(ValueError, match=r"write HOST:PORT, such as .* or unix:PATH"):
        check_listen(address)


def test_only_where_nothing_need_be_served_may_an_address_be_empty():
    assert check_optional_listen("") == ""
    with pytest.raises(ValueError, match="'' is not an address"):
        check_listen("")


@pytest.mark.parametrize(
    "address",
    [
        "hsc:7402",
        "10.0.0.1:7402,10.0.0.2:7402",
        "10.0.0.1:1, 10.0.0.2:1",
        "dns:///hsc:7402",
        "unix:/run/hsc.sock",
        "unix:/run/a.sock,unix:/run/b.sock",
        "east=10.0.0.1:7402,west=10.0.0.2:7402",
        "east=dns:///hsc.east:7402,west=dns:///hsc.west:7402",
    ],
)
def test_peers_are_one_or_several_or_a_name_that_grpc_resolves(address):
    assert check_peers(address) == address


@pytest.mark.parametrize(
    "address",
    ["", "hsc", "7402", 7402, "hsc:7402,", "hsc:7402,other", "https://hsc:7402", "a b=hsc:7402", "east=hsc"],
)
def test_what_cannot_be_connected_to_is_refused_with_what_to_write(address):
    with pytest.raises(ValueError, match="is not an address to connect to: write HOST:PORT"):
        check_peers(address)


def test_the_name_of_a_zone_is_checked(monkeypatch):
    monkeypatch.setenv("DULY_RPC_ZONE", "eu-west-1a")
    assert RpcSettings.load().zone == "eu-west-1a"

    monkeypatch.setenv("DULY_RPC_ZONE", "eu=west")
    with pytest.raises(
        SettingsError, match=r"rpc\.zone .*'eu=west' is not the name of a zone: write letters"
    ):
        RpcSettings.load()


def test_a_service_that_is_given_a_port_alone_is_told_what_to_write(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_FRONTEND_LISTEN", "7401")
    with pytest.raises(SettingsError) as from_environment:
        FrontendSettings.load()

    monkeypatch.delenv("DULY_FRONTEND_LISTEN")
    (tmp_path / "duly.toml").write_text("[frontend]\nlisten = 7401\n", encoding="utf-8")
    with pytest.raises(SettingsError) as from_file:
        FrontendSettings.load()

    words = "is not an address to serve on: write HOST:PORT, such as 127.0.0.1:7401, or unix:PATH"
    assert (
        str(from_environment.value) == f"frontend.listen (environment: DULY_FRONTEND_LISTEN): '7401' {words}"
    )
    assert str(from_file.value) == f"frontend.listen (duly.toml): 7401 {words}"
