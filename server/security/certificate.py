"""The TLS certificate of the server, read from files again whenever they change.

tls_certificate, tls_key ──▶ ServerCertificate.context() ──▶ the next handshake
"""

import logging
import os
import ssl
import time
from pathlib import Path
from typing import NoReturn

from kindcast.server.errors import CertificateUnusable

__all__ = ["ServerCertificate"]

LOOK_SECONDS = 1.0
"""The shortest interval between two checks of the files, which are made when a connection begins."""

_log = logging.getLogger("kindcast.tls")


class ServerCertificate:
    """The certificate of the server. For one event loop. Existing connections keep the certificate with which they
    began."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """`certificate` is a PEM file with the server's certificate first and then the intermediate certificates. `key`
        is a PEM file without a passphrase; None if it is in the same file. Raises `CertificateUnusable`."""
        self._certificate = certificate
        self._key = key
        self._seen = self._state()
        self._context = self._load()
        self._looked_at = time.monotonic()

    def context(self) -> ssl.SSLContext:
        """Returns the context for the next handshake. If changed files cannot be used, this is logged once and the
        previous certificate is kept."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            state = self._state()
            if state != self._seen:
                self._seen = state
                try:
                    self._context = self._load()
                    _log.info("the certificate %s was loaded again", self._certificate)
                except CertificateUnusable as error:
                    _log.error("the old certificate stays in use: %s", error)
        return self._context

    def _files(self) -> list[Path]:
        return [self._certificate, *([] if self._key is None else [self._key])]

    def _state(self) -> list[tuple[int, int, int] | None]:
        """Returns a value that changes when a file is replaced or written."""
        found: list[tuple[int, int, int] | None] = []
        for each in self._files():
            try:
                status = os.stat(each)
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                found.append(None)
        return found

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 or newer
        context.set_alpn_protocols(["http/1.1"])
        for each in self._files():
            try:
                each.read_bytes()
            except OSError as error:
                raise CertificateUnusable(f"{each} cannot be read: {error.strerror or error}") from error
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        except ssl.SSLError as error:
            key = self._key or self._certificate
            if error.reason == "KEY_VALUES_MISMATCH":
                detail = f"the key in {key} does not belong to the first certificate in {self._certificate}"
            else:
                detail = f"{self._certificate} and {key} must contain a certificate and its key, as PEM"
            raise CertificateUnusable(detail) from error
        except _Encrypted as error:
            detail = f"the key in {self._key or self._certificate} has a passphrase: store the key without one"
            raise CertificateUnusable(detail) from error
        return context


class _Encrypted(Exception):
    """The key needs a passphrase."""


def _no_passphrase() -> NoReturn:
    raise _Encrypted
