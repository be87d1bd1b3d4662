"""Says what to do about a connection that TLS made fail, by what gRPC says of it."""

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

# The first that fits counts.
_BY_WORDS = (
    ("certificate has expired", _EXPIRED),
    ("CERTIFICATE_VERIFY_FAILED", _UNTRUSTED),
    ("certificate signature failure", _UNTRUSTED),
    ("Hostname Verification Check failed", _OTHER_HOST),
    ("WRONG_VERSION_NUMBER", _PLAIN_SERVER),
    ("Socket closed", _CLOSED),
    ("Connection reset by peer", _CLOSED),
)


def advice(details: str) -> str:
    """Return what to do, as a clause; empty: nothing in gRPC's words is about TLS."""
    return next((said for words, said in _BY_WORDS if words in details), "")
