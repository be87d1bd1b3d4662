"""Settings of servers and of calls."""

from datetime import timedelta
from typing import ClassVar, Literal, Self

from pydantic import Field

from duly_core.config.addresses import Zone, is_loopback
from duly_core.config.settings import Duration, Section


class RpcSettings(Section):
    """`[rpc]`: limits of every Duly server and client."""

    SECTION: ClassVar[str] = "rpc"

    zone: Zone = ""
    """The zone (data centre) that this process is in. It calls servers of this zone first, if its addresses say which these are
    (`east=10.0.1.11:7401,west=10.0.2.11:7401`), and others while none of them serves. Servers report it. Empty: none."""
    max_message_bytes: int = 8 * 1024 * 1024
    """The largest request or answer; a larger one is refused with RESOURCE_EXHAUSTED."""
    call_timeout: Duration = timedelta(seconds=10)
    """Deadline of a call that names no other."""
    shutdown_grace: Duration = timedelta(seconds=5)
    """How long a stopping server lets running calls finish."""

    max_connections: int = Field(default=10_000, ge=1)
    """Connections that a server accepts, at most 40 % of the file descriptors that its process may open. More are closed
    at once. An idle one takes 15 kB."""
    max_calls_per_connection: int = Field(default=2_000, ge=1)
    """Calls that one connection may have at a time. A client's further calls wait for the end of others."""
    idle_timeout: Duration = Field(default=timedelta(minutes=30), gt=timedelta(0))
    """A server closes a connection without a call after this time. Clients connect again with their next call."""
    handshake_timeout: Duration = Field(default=timedelta(seconds=20), gt=timedelta(0))
    """A server closes a connection that has not said what HTTP/2 and TLS begin with after this time."""
    request_timeout: Duration = Field(default=timedelta(seconds=60), gt=timedelta(0))
    """A server ends a call whose request has not arrived completely after this time."""

    cert_file: str = ""
    """Certificate (PEM, with its chain) that this process shows. A server with one serves TLS only; changed files are
    read without a restart."""
    key_file: str = ""
    """Private key (PEM) of `cert_file`."""
    ca_file: str = ""
    """Authorities (PEM) that sign the certificates of servers and of clients; `system`: those of the machine, for servers.
    A client with one connects by TLS only."""
    client_certificates: Literal["ignored", "required"] = "ignored"
    """Whether a server with TLS asks each caller for a certificate of `ca_file`."""
    allow_plaintext: bool = False
    """Serve on other addresses than loopback without TLS, and send tokens there. Everybody on the way can then read and
    change all that is said."""
    allow_plaintext_health: bool = False
    """Serve health checks alone without TLS on other addresses than loopback, as for the probes of Kubernetes. They say only
    whether the process serves."""
    token_file: str = ""
    """File with the token that this process shows to Frontend and HSC. Changed files are read without a restart."""

    def for_health(self, listen: str) -> Self:
        """For a server of health checks alone: without TLS where that is allowed, since a worker's certificate may be a client's."""
        if not (self.allow_plaintext_health or is_loopback(listen)):
            return self
        return self.model_copy(update={"cert_file": "", "key_file": "", "allow_plaintext": True})

    def for_local_socket(self) -> Self:
        """Without a limit on messages: on a host's own socket a batch may be as large as its tasks are."""
        plain = {
            "cert_file": "",
            "key_file": "",
            "ca_file": "",
            "token_file": "",
        }  # the socket's file mode says who may
        return self.model_copy(update={"max_message_bytes": -1, **plain})
