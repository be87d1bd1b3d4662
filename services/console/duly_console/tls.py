"""TLS for browsers, with the certificate of the process's other servers; changed files are read again."""

import ssl
from pathlib import Path

from duly_core.errors import SettingsError
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.tls import SYSTEM_AUTHORITIES


def tls_context(settings: RpcSettings) -> ssl.SSLContext | None:
    """Return what a server shows to browsers; None: it serves without TLS.

    Raises:
        SettingsError: a file is missing, or is not what it should be.
    """
    if not settings.cert_file:
        return None
    files = _Files(settings)
    context = files.load()

    def choose(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = files.newest()

    context.sni_callback = choose
    return context


class _Files:
    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings
        self._stamp = self._look()
        self._context: ssl.SSLContext | None = None

    def _look(self) -> list[tuple[int, int] | None]:
        return [
            _stamp(path)
            for path in (self._settings.cert_file, self._settings.key_file, self._settings.ca_file)
        ]

    def load(self) -> ssl.SSLContext:
        settings = self._settings
        if not settings.key_file:
            raise SettingsError("rpc.cert_file needs rpc.key_file: the private key of the certificate")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file)
            if settings.client_certificates == "required":
                if settings.ca_file in ("", SYSTEM_AUTHORITIES):
                    raise SettingsError("rpc.client_certificates = required needs rpc.ca_file")
                context.load_verify_locations(settings.ca_file)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # also what OpenSSL says of a file
            raise SettingsError(f"the certificate in rpc.cert_file cannot be used: {error}") from error
        self._context = context
        return context

    def newest(self) -> ssl.SSLContext:
        """Return the context of the files as they are; while they do not fit each other, the one before."""
        stamp = self._look()
        if stamp != self._stamp or self._context is None:
            try:
                self.load()
            except SettingsError:
                pass
            else:
                self._stamp = stamp
        assert self._context is not None  # noqa: S101 (loaded before the first connection)
        return self._context


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
