"""Makes an authority and certificates for development: files in a folder, readable by their owner."""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "ca"
LIFETIME = timedelta(days=365)
_CLOCKS_DIFFER_BY = timedelta(minutes=5)


def make_authority(folder: Path, lifetime: timedelta = LIFETIME) -> None:
    """Write `ca.pem` and `ca.key`; an authority that is there stays."""
    if (folder / f"{AUTHORITY}.pem").exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Duly development authority")
    certificate = (
        _builder(name, name, key.public_key(), lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder, AUTHORITY, certificate, key)


def make_certificate(folder: Path, name: str, hosts: list[str], lifetime: timedelta = LIFETIME) -> None:
    """Write NAME.pem and NAME.key, signed by the folder's authority; files that are there are replaced.

    Args:
        folder: has the authority.
        name: of the files, and of the principal that the certificate is for.
        hosts: names and IP addresses of a server; empty: it is for a client alone.
        lifetime: how long it is valid.
    """
    authority = x509.load_pem_x509_certificate((folder / f"{AUTHORITY}.pem").read_bytes())
    signing_key = serialization.load_pem_private_key((folder / f"{AUTHORITY}.key").read_bytes(), None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not of an elliptic curve")
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    certificate = (
        _builder(_name(name), authority.subject, key.public_key(), lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        # the first name is the principal's, whatever hosts follow
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), *map(_host, hosts)]), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    _write(folder, name, certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER_BY)
        .not_valid_after(now + lifetime)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _replace(folder / f"{name}.key", secret, 0o600)
    _replace(folder / f"{name}.pem", certificate.public_bytes(pem), 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write a file that nobody reads half-written, and that has its mode from the start."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    fresh.replace(path)
