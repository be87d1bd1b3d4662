"""Says what to do about a connection that failed, by what gRPC says of it."""

_EXPIRED = (
    "the server's certificate, or its authority's, has expired: renew it (for development `duly certs`), and check "
    "the clock of this machine"
)
_UNTRUSTED = (
    "the server's certificate is not of an authority that is trusted here: DULY_RPC_CA_FILE must name the authority "
    "that signed it"
)
_OTHER_HOST = (
    "the server's certificate is for other hosts: use a name that is in it, or make one with this name (for "
    "development `duly certs DIR --server HOST`)"
)
_PLAIN_SERVER = (
    "the server has no TLS: unset DULY_RPC_CA_FILE here, or set rpc.cert_file and rpc.key_file of the server"
)
_CLOSED = (
    "if the server has TLS, set DULY_RPC_CA_FILE; if it asks for certificates, set DULY_RPC_CERT_FILE and "
    "DULY_RPC_KEY_FILE to one that has not expired"
)

_HTTP = (
    "what listens there speaks HTTP, and not gRPC: the console and metrics do. A Frontend listens on port 7401, unless "
    "frontend.listen says another"
)

# The first that fits counts.
_BY_WORDS = (
    ("certificate has expired", _EXPIRED),
    ("CERTIFICATE_VERIFY_FAILED", _UNTRUSTED),
    ("certificate signature failure", _UNTRUSTED),
    ("Hostname Verification Check failed", _OTHER_HOST),
    ("WRONG_VERSION_NUMBER", _PLAIN_SERVER),
    ("http1.x server", _HTTP),
    ("Failed parsing HTTP/2", _HTTP),
    ("Socket closed", _CLOSED),
    ("Connection reset by peer", _CLOSED),
)


def advice(details: str) -> str:
    """Return what to do, as a clause; empty: gRPC's words say enough, or nothing that we know."""
    return next((said for words, said in _BY_WORDS if words in details), "")
