"""A certificate of our own, signed by its own key."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID: Final = timedelta(days=365)
_BEFORE: Final = timedelta(hours=1)
"""Clocks differ: a certificate is good a little before it is made."""


class SelfMade:
    """Makes them; given to who needs it, so that it is loaded for those alone."""

    def make(self, host: str, now: datetime) -> tuple[bytes, bytes, datetime]:
        """A certificate for a host and its key as PEM, and until when it is good."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"{host[:40]}@{int(now.timestamp())}")]
        )
        names: list[x509.GeneralName] = [x509.DNSName("localhost")]
        names += [x509.IPAddress(ip_address(one)) for one in ("::1", "127.0.0.1")]
        with contextlib.suppress(ValueError):
            names.append(x509.DNSName(host))
        until = now + _VALID
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        return (
            certificate.public_bytes(pem),
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
            until,
        )

    def good_until(self, certificate: bytes) -> datetime:
        """Until when a certificate is good.

        Raises:
            ValueError: it is none.
        """
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
