"""When the certificate of a caller expires: TLS checks it when the connection is made, and never again."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

_PEM = "x509_pem_cert"
_REMEMBERED = 1_024


def expires_at(auth: Mapping[str, Sequence[bytes]]) -> datetime:
    """Return the end of the certificate in gRPC's auth context; one that cannot be read has expired."""
    pems = auth.get(_PEM) or ()
    return _not_after(bytes(pems[0])) if pems else datetime.min.replace(tzinfo=UTC)


@lru_cache(_REMEMBERED)
def _not_after(pem: bytes) -> datetime:
    from cryptography import x509  # only where callers show certificates

    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
