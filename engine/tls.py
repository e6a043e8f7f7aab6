"""Certificates and keys in PEM become contexts of TLS; opens no connection."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def trusting(
    authority: str | None, data: str | None = None, *, anybody: bool = False
) -> ssl.SSLContext:
    """Trusts the certificates of a file or a text, or those of the system; or whoever answers.

    Raises:
        OSError: they cannot be read.
    """
    context = ssl.create_default_context(cafile=authority, cadata=data)
    # As Go: certificates without the extensions that Python wants since 3.13 are good.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if anybody:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def certificates_in(file: Path) -> bytes:
    """The text of a file with certificates that others are to trust.

    Raises:
        OSError: it cannot be read, or there is none; who is given such a text takes it as it is.
    """
    text = file.read_bytes()  # whose errors name it
    try:
        trusting(str(file))
    except ssl.SSLError as error:
        raise OSError(f"{file}: holds no certificate in PEM") from error
    return text


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Puts a pair (PEM) into a context that has none; one that fails is of no more use.

    Raises:
        OSError: it is no pair.
    """
    # The standard library takes it from files only; this folder is ours alone.
    with tempfile.TemporaryDirectory() as folder:
        chain, secret = Path(folder, "tls.crt"), Path(folder, "tls.key")
        chain.write_bytes(certificate)
        secret.write_bytes(key)
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(chain, secret, password=b"")
        except ssl.SSLError as error:
            raise OSError(
                "the key is not that of the certificate"
                if error.reason == "KEY_VALUES_MISMATCH"
                else "not a certificate and its key, in PEM and without a password"
            ) from error
