"""A certificate authority of a test run: makes the key pairs a control plane needs, as files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
VALID = datetime.timedelta(days=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs server and client certificates; everything lies in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "berth test CA")])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        # What it may sign: strict clients want that said, too.
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            self._builder(self._name, self._key)
            .add_extension(basic, critical=True)
            .add_extension(own, critical=False)
            .add_extension(usage, critical=True)
        )
        self.certificate = folder / "ca.crt"
        _write_certificate(self.certificate, builder.sign(self._key, hashes.SHA256()))

    def server(self, name: str, key: Key | None = None) -> KeyPair:
        """A certificate for a server on loopback; its key is one of its own if none is given."""
        names = x509.SubjectAlternativeName(
            [
                x509.DNSName("localhost"),
                x509.DNSName("kubernetes.default.svc"),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
            ]
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(name, subject, ExtendedKeyUsageOID.SERVER_AUTH, names, key)

    def tls(self) -> ssl.SSLContext:
        """That of a server which has a certificate of this authority."""
        pair = self.server("server")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.certificate)
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def client(self, user: str, *groups: str) -> KeyPair:
        """A certificate that authenticates as `user` (CN) in `groups` (O)."""
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(user.replace(":", "_"), subject, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def service_account_key(self) -> KeyPair:
        """The RSA pair that signs service-account tokens (`certificate` is the public key)."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pair = KeyPair(self._folder / "sa.pub", self._folder / "sa.key")
        _write_key(pair.key, key)
        pair.certificate.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return pair

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
        key: Key | None = None,
    ) -> KeyPair:
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        _write_certificate(pair.certificate, builder.sign(self._key, hashes.SHA256()))
        _write_key(pair.key, key)
        return pair

    def _builder(self, subject: x509.Name, key: Key) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + VALID)
            # Without it strict clients (Python from 3.13 on) refuse the certificate.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: Key) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
