"""A user of a scheduler's HTTPS server, and a real Prometheus that scrapes it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.certificates import KeyPair
from tests.cluster.process import Process, free_port, wait_until
from tests.cluster.prometheus import PROGRAM


def get(
    port: int, path: str, *, token: str = "", asks: object = None, pair: KeyPair | None = None
) -> tuple[int, str]:
    """GET, or POST of what is asked; its certificate is not checked, as kubelets do not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    data = None if asks is None else json.dumps(asks).encode()
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Scraper:
    """Prometheus, which scrapes one scheduler each second with a token."""

    def __init__(self, folder: Path, target: int, token: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(token)
        self._port = free_port()
        job = {
            "job_name": "berth",
            "scheme": "https",
            "tls_config": {"insecure_skip_verify": True},
            "authorization": {"credentials_file": str(folder / "token")},
            "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
        }
        config = folder / "prometheus.yml"
        timing = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        config.write_text(yaml.safe_dump({"global": timing, "scrape_configs": [job]}))
        command: list[str | Path] = [
            PROGRAM,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        self.process = Process("prometheus", command, folder / "prometheus.log")

    def query(self, query: str) -> list[dict[str, Any]]:
        """The samples of an instant query, each with `metric` and `value`."""
        asked = urllib.parse.urlencode({"query": query})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{asked}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:
            return []

    def wait_for(self, query: str) -> list[dict[str, Any]]:
        """Wait until a query has samples."""
        wait_until(f"samples of {query}", lambda: self.query(query), seconds=30)
        return self.query(query)
