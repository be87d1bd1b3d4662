"""`duly certs` makes files for development, and never replaces an authority."""

import pytest
from cryptography import x509
from typer.testing import CliRunner

from duly_cli.__main__ import app


def run(folder, *arguments):
    return CliRunner().invoke(app, ["certs", str(folder), *arguments], env={"COLUMNS": "200"})


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_it_makes_an_authority_and_certificates_and_says_what_to_set(tmp_path):
    done = run(tmp_path / "certs", "--server", "duly.example.org", "--server", "10.0.0.7", "--client", "shop")

    folder = tmp_path / "certs"
    names = read(folder / "server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert (done.exit_code, read(folder / "shop.pem").issuer) == (0, read(folder / "ca.pem").subject)
    assert {"duly.example.org", "localhost"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"10.0.0.7", "127.0.0.1"} <= {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    for name, file in (("CERT", "server.pem"), ("KEY", "server.key"), ("CA", "ca.pem"), ("CERT", "shop.pem")):
        assert f"export DULY_RPC_{name}_FILE={folder / file}" in done.stdout
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {
        "ca.key": 0o600,
        "server.key": 0o600,
        "shop.key": 0o600,
    }


def test_an_authority_that_is_there_signs_and_stays(tmp_path):
    run(tmp_path, "--server", "a.example.org")
    authority, server = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()

    done = run(tmp_path, "--server", "b.example.org")

    assert "the authority that was there" in done.stdout
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert (tmp_path / "server.pem").read_bytes() != server


@pytest.mark.parametrize("lost", ["ca.pem", "ca.key"])
def test_half_an_authority_is_refused(tmp_path, lost):
    run(tmp_path, "--server", "a.example.org")
    (tmp_path / lost).unlink()

    done = run(tmp_path, "--server", "a.example.org")

    assert (done.exit_code, (tmp_path / lost).exists()) == (2, False)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--server", "a b"),
        ("--server", "a.example.org:7401,b"),
        ("--client", "../x"),
        ("--client", "ca"),
        ("--client", "server"),
        ("--server", "a", "--lifetime", "x"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path, arguments):
    done = run(tmp_path / "certs", *arguments)

    assert (done.exit_code, (tmp_path / "certs").exists()) == (2, False)
