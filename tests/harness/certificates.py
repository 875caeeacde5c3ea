"""Certificates of an authority of the test's own."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

__all__ = ["Authority"]

LOCAL = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost"))
LIFE = datetime.timedelta(days=1)


class Authority:
    """Signs certificates, by default for 127.0.0.1 and localhost."""

    def __init__(self, folder: Path) -> None:
        """Its own certificate is `file`."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority of tests")])
        made = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(
        self,
        folder: Path,
        *,
        passphrase: bytes | None = None,
        names: Sequence[x509.GeneralName] = LOCAL,
        left: datetime.timedelta = LIFE,
    ) -> tuple[Path, Path]:
        """The files of a certificate and its key, in place of those that are there. It ends after the time `left`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server of tests")])
        made = self._builder(subject, key, left).add_extension(x509.SubjectAlternativeName(names), False)
        certificate, secret = folder / "server.pem", folder / "server.key"
        certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return certificate, secret

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, left: datetime.timedelta = LIFE
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFE)
            .not_valid_after(now + left)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )
