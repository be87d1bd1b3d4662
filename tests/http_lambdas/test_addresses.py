"""Which addresses HTTP lambdas may connect to."""

from ipaddress import ip_network

import pytest

from duly_wire.public_addresses import is_allowed


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"],
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert is_allowed(address, ())


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::"),
        *("10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1", "fec0::1"),
        *("169.254.1.1", "169.254.169.254", "fe80::1", "fe80::1%eth0"),
        *("224.0.0.1", "239.1.1.1", "ff02::1", "255.255.255.255", "240.0.0.1"),
        *("100.64.0.1", "198.18.0.1", "192.0.0.192", "192.0.2.1", "2001:db8::1", "100::1"),
        *("168.63.129.16", "fd00:ec2::254", "100.100.100.200"),
        # other ways to write an IPv4 address in IPv6
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:a00:1", "::169.254.169.254"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:a9fe:a9fe::1", "2002:7f00:1::"),
        "2001:0:a9fe:a9fe:0:0:5601:5601",
        # Teredo, of a public server and a public client
        "2001:0:5db8:d822:0:0:a247:27dd",
        *("", "localhost", "127.1", "0x7f000001"),
    ],
)
def test_any_other_address_is_not(address: str) -> None:
    assert not is_allowed(address, ())


@pytest.mark.parametrize(
    ("address", "network", "allowed"),
    [
        ("10.1.2.3", "10.1.0.0/16", True),
        ("10.2.2.3", "10.1.0.0/16", False),
        ("::ffff:10.1.2.3", "10.1.0.0/16", True),
        ("fd12::1", "fd12::/16", True),
        ("127.0.0.1", "fd12::/16", False),
        # a metadata service hands out credentials: a wide network does not open it
        ("169.254.169.254", "0.0.0.0/0", False),
        ("2001:0:a00:1::a247:27dd", "10.0.0.0/8", False),
        ("2001:0:a00:1::a247:27dd", "2001::/32", True),
        ("169.254.169.254", "169.254.0.0/16", False),
        ("169.254.169.254", "169.254.169.254/32", True),
        ("::ffff:169.254.169.254", "::/0", False),
    ],
)
def test_a_network_of_the_file_is_allowed_too(address: str, network: str, allowed: bool) -> None:
    assert is_allowed(address, (ip_network(network),)) is allowed
