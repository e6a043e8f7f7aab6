"""A real Prometheus, and an exporter whose numbers the tests set."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.process import Process, free_port, wait_until

PROGRAM = "prometheus"


def missing() -> str | None:
    """Say in one line what this machine lacks, if anything."""
    if shutil.which(PROGRAM) is None:
        return "these tests need the program `prometheus` on PATH (there is none)"
    return None


class Exporter:
    """Serves node series: counters that grow at the rate last set, and plain gauges."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str], tuple[float, float, float]] = {}
        self._gauges: dict[tuple[str, str], float] = {}
        self._others: dict[str, float] = {}
        exporter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.page().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def address(self) -> str:
        """host:port, as a scrape target."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Serve until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the socket."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def set_bandwidth(self, node: str, bytes_per_second: float) -> None:
        """Let the node receive this much from now on."""
        self.set_rate("node_network_receive_bytes_total", node, bytes_per_second)

    def set_rate(self, series: str, node: str, per_second: float) -> None:
        """Let a counter grow at this rate from now on."""
        now = time.monotonic()
        with self._lock:
            total = self._total(self._rates.get((series, node), (0.0, 0.0, now)), now)
            self._rates[series, node] = (total, per_second, now)

    def set_gauge(self, series: str, node: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._gauges[series, node] = value

    def set_series(self, series: str, value: float, **labels: str) -> None:
        """Set a gauge of something else than a node."""
        words = ",".join(f'{name}="{text}"' for name, text in labels.items())
        with self._lock:
            self._others[f"{series}{{{words}}}"] = value

    def clear(self) -> None:
        """Forget every series."""
        with self._lock:
            self._others.clear()
            self._rates.clear()
            self._gauges.clear()

    def page(self) -> str:
        """What a scrape sees now."""
        now = time.monotonic()
        with self._lock:
            values = {key: self._total(rate, now) for key, rate in self._rates.items()}
            values |= self._gauges
            others = [f"{series} {value!r}\n" for series, value in sorted(self._others.items())]
        rows = [
            f'{series}{{node="{node}",device="eth0"}} {value!r}\n'
            for (series, node), value in sorted(values.items())
        ]
        return "".join(rows + others)

    @staticmethod
    def _total(rate: tuple[float, float, float], now: float) -> float:
        total, per_second, since = rate
        return total + per_second * (now - since)


class Prometheus:
    """Prometheus on loopback, scraping one exporter every second."""

    def __init__(self, folder: Path, exporter: Exporter) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.exporter = exporter
        self._port = free_port()
        # The node's own address becomes `instance`, as node-exporter's is in a cluster.
        relabel = [
            {
                "source_labels": ["node"],
                "regex": "(.+)",
                "target_label": "instance",
                "replacement": "$1:9100",
            }
        ]
        job = {
            "job_name": "node-exporter",
            "static_configs": [{"targets": [exporter.address]}],
            "metric_relabel_configs": relabel,
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

    @property
    def url(self) -> str:
        """The base URL of its API."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the exporter and Prometheus; returns when it answers."""
        self.exporter.start()
        self.process.start()
        wait_until("Prometheus is ready", self._ready)

    def stop(self) -> None:
        """End both."""
        self.process.stop(seconds=3)
        self.exporter.stop()

    def query(self, query: str) -> dict[str, float]:
        """An instant query: node -> value."""
        asked = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
        return {item["metric"].get("node", ""): float(item["value"][1]) for item in result}

    def wait_for(self, query: str, nodes: set[str], *, seconds: float = 20.0) -> None:
        """Wait until a query has a value for each of these nodes."""
        wait_until(
            f"{query} for {sorted(nodes)}",
            lambda: nodes <= self.query(query).keys(),
            seconds=seconds,
        )

    def _ready(self) -> bool:
        if not self.process.running:
            raise RuntimeError(f"Prometheus ended at once:\n{self.process.tail()}")
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
