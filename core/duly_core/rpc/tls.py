"""TLS of servers and channels, from files that are read again when they change."""

from importlib.util import find_spec
from pathlib import Path

import grpc

from duly_core.config.addresses import is_loopback
from duly_core.errors import SettingsError
from duly_core.rpc.settings import RpcSettings

SYSTEM_AUTHORITIES = "system"
"""As `rpc.ca_file`: the authorities that the machine trusts."""


def server_credentials(settings: RpcSettings) -> grpc.ServerCredentials | None:
    """Return what a server shows and asks for; None: it serves without TLS.

    The certificate is read again for each connection if its files have changed.

    Raises:
        SettingsError: a file cannot be read, or one is missing.
    """
    if not settings.cert_file:
        return None
    files = _Files(settings)
    first = files.read()

    def newest() -> grpc.ServerCertificateConfiguration | None:
        # while files are being replaced they may not fit each other: the next connection looks again
        return files.read_if_changed()

    return grpc.dynamic_ssl_server_credentials(
        first, newest, require_client_authentication=settings.client_certificates == "required"
    )


def refuse_strangers(listen: str) -> None:
    """Let an address of this machine alone pass.

    Raises:
        SettingsError: others can reach it.
    """
    if not is_loopback(listen):
        raise SettingsError(
            f"{listen} can be reached from other machines, and there is no TLS: set rpc.cert_file and rpc.key_file "
            "(`duly certs` makes some for development), or say rpc.allow_plaintext = true (for an address of health checks "
            "alone: rpc.allow_plaintext_health = true)"
        )


class _Files:
    """The files of a server's certificate."""

    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings
        self._stamp = self._look()

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_stamp, (self._settings.cert_file, self._settings.key_file, self._settings.ca_file)))

    def read(self) -> grpc.ServerCertificateConfiguration:
        settings = self._settings
        if not settings.key_file:
            raise SettingsError("rpc.cert_file needs rpc.key_file: the private key of the certificate")
        asks = settings.client_certificates == "required"
        if asks and settings.ca_file in ("", SYSTEM_AUTHORITIES):
            raise SettingsError(
                "rpc.client_certificates = required needs rpc.ca_file: the authority that signs clients' certificates"
            )
        if asks and find_spec("cryptography") is None:
            raise SettingsError(
                "rpc.client_certificates = required needs cryptography, to read when they expire: pip install 'duly[services]'"
            )
        pair = (_read("key_file", settings.key_file), _read("cert_file", settings.cert_file))
        roots = _read("ca_file", settings.ca_file) if asks else None
        return grpc.ssl_server_certificate_configuration([pair], roots)

    def read_if_changed(self) -> grpc.ServerCertificateConfiguration | None:
        stamp = self._look()
        if stamp == self._stamp:
            return None
        try:
            found = self.read()
        except SettingsError:
            return None
        self._stamp = stamp
        return found


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"rpc.{name}: {path} cannot be read: {error.strerror}") from error
