"""What is trusted, read from files that may hold anything."""

from __future__ import annotations

import pytest

from engine.tls import certificates_in
from tests.cluster.certificates import Authority


def test_a_file_without_a_certificate_is_none_to_be_trusted(tmp_path):
    path = tmp_path / "ca.crt"
    with pytest.raises(OSError, match="No such file"):
        certificates_in(path)
    path.write_text("a host's name")
    with pytest.raises(OSError, match="holds no certificate in PEM"):
        certificates_in(path)
    authority = Authority(tmp_path).certificate
    assert certificates_in(authority) == authority.read_bytes()
