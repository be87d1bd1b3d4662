"""`duly health` says in plain words why a service does not answer."""

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app


@pytest.fixture(scope="module")
def web_page() -> Iterator[str]:
    """The address of a server of HTTP, as the console is one."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a process that takes connections, and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("web_page", "speaks HTTP, and not gRPC: the console and metrics do"),
        ("silent", "nothing came within 0.5 s"),
        ("127.0.0.1:1", "nothing listens there: the service does not run"),
        ("nowhere.invalid:7401", "the name of the host cannot be found"),
        ("unix:/nowhere/duly", "nothing listens there: there is no such socket"),
    ],
)
def test_why_a_service_does_not_answer_is_said_in_words(
    place: str, said: str, request: pytest.FixtureRequest
) -> None:
    address = place if ":" in place else request.getfixturevalue(place)

    done = CliRunner().invoke(app, ["health", address, "--timeout", "500ms"])

    assert done.exit_code == 1
    assert said in done.stderr
    assert not any(word in done.stderr for word in ("UNAVAILABLE", "DEADLINE", "ipv4:"))


def test_the_port_of_a_page_is_told_apart_by_every_command(web_page: str) -> None:
    done = CliRunner().invoke(app, ["list", "--address", web_page])

    assert "speaks HTTP, and not gRPC" in done.stderr
