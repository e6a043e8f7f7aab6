"""Addresses of the API server: which are none, and through which proxy one is reached.

Looks at the environment; opens no connection.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from engine.configuration.forms import is_address
from engine.kube.errors import KubeconfigError
from engine.text.display import without_user


def check_url(url: str, what: str) -> None:
    """Demands an http or https address.

    Raises:
        KubeconfigError: it is none; `what` begins the text.
    """
    if not is_address(url):
        raise KubeconfigError(f"{what} {without_user(url)!r} is not an http or https address")


def proxy_to(server: str, configured: str | None) -> str | None:
    """The proxy for `server`: the configured one, else the environment's. Asked for once.

    The environment's is never asked for loopback, or it would be given the token.
    Source: Go's net/http, ProxyFromEnvironment.

    Raises:
        KubeconfigError: that of the environment is no address.
    """
    if configured:
        return configured
    parts = urlsplit(server)
    host = parts.hostname or ""
    if _is_loopback(host):
        return None
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme)
    if not found or urllib.request.proxy_bypass(host_of(server)) or _is_excepted(host, proxies):
        return None
    found = found if "://" in found else f"http://{found.lstrip('/')}"
    check_url(found, f"{parts.scheme}_proxy:")
    return found


def host_of(url: str) -> str:
    """Host and port as they stand in an address, without the user."""
    return urlsplit(url).netloc.rpartition("@")[-1]


def _is_excepted(host: str, proxies: Mapping[str, str]) -> bool:
    """Whether a network or a `*.domain` of NO_PROXY has it, which Python does not look at."""
    for one in map(str.strip, proxies.get("no", "").split(",")):
        if one.startswith("*.") and host.endswith(one[1:].lower()):
            return True
        with suppress(ValueError):
            if ip_address(host) in ip_network(one, strict=False):
                return True
    return False


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
