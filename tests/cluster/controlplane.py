"""A real control plane on loopback: etcd and kube-apiserver, with faults to order.

Nothing here decides what a test checks; it starts, breaks, repairs and stops the real programs.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries
from tests.cluster.certificates import Authority, KeyPair
from tests.cluster.process import Process, free_port, wait_until

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        # Bindings with both stages: a request whose answer died with the server shows as well.
        {
            "level": "RequestResponse",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/binding", "bindings"]}],
        },
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/openapi*"]},
        {"level": "Metadata", "omitStages": ["RequestReceived"]},
    ],
}


class ControlPlane:
    """etcd and kube-apiserver with their data in one folder; ports and data survive a restart."""

    def __init__(self, folder: Path, *, apiserver_flags: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = Authority(folder / "certs")
        self.audit_log = folder / "audit.log"
        self._etcd_port, self._peer_port, self._port = free_port(), free_port(), free_port()
        self._admin = self.authority.client("admin", "system:masters")
        self.etcd = Process("etcd", self._etcd_command(), folder / "etcd.log")
        command = [*self._apiserver_command(), *apiserver_flags]
        self.apiserver = Process("kube-apiserver", command, folder / "kube-apiserver.log")

    @property
    def url(self) -> str:
        """The base URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    # Life and death.

    def start(self) -> None:
        """Start what does not run and wait until it is ready."""
        if not self.etcd.running:
            self.etcd.start()
            self._wait("etcd", self.etcd, self._etcd_is_ready)
        if not self.apiserver.running:
            self.apiserver.start()
            self.wait_ready()

    def stop(self) -> None:
        """End both, politely first; nothing is left running."""
        self.apiserver.stop(seconds=3)
        self.etcd.stop(seconds=3)

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Wait until the API server says it is ready."""
        self._wait("kube-apiserver", self.apiserver, self._apiserver_is_ready, seconds)

    def kill(self) -> None:
        """SIGKILL the API server: connections break, etcd keeps the data."""
        self.apiserver.kill()

    def restart(self) -> None:
        """Stop the API server and start it again on the same port and data."""
        self.apiserver.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP the API server: connections stay open and nothing answers."""
        self.apiserver.freeze()

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        self.apiserver.thaw()

    def compact(self) -> int:
        """Forget etcd's history and the API server's watch cache; returns the revision kept.

        A watch or list from before that revision is answered 410 from now on. The API server is
        restarted, because its watch cache would still remember.
        """
        revision = int(self._etcd("kv/range", {"key": _b64("a")})["header"]["revision"])
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        self.restart()
        return revision

    # Who may speak to it, and how.

    def client_certificate(self, user: str | None = None, *groups: str) -> KeyPair:
        """The admin's certificate, or a fresh one for `user` in `groups`."""
        return self._admin if user is None else self.authority.client(user, *groups)

    def kubeconfig(self, user: str | None = None, *groups: str) -> dict[str, Any]:
        """A kubeconfig as data (admin without a user)."""
        pair = self.client_certificate(user, *groups)
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        keys = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": keys}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }

    def kubeconfig_file(self, user: str | None = None, *groups: str) -> Path:
        """Write the kubeconfig of a user into the folder and return its path."""
        path = self.folder / f"{(user or 'admin').replace(':', '_')}.kubeconfig"
        path.write_text(yaml.safe_dump(self.kubeconfig(user, *groups)))
        return path

    def ssl_context(self, user: str | None = None, *groups: str) -> ssl.SSLContext:
        """TLS for an HTTP client that speaks as a user (admin without one)."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        pair = self.client_certificate(user, *groups)
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def audit(self, **wanted: str) -> list[dict[str, Any]]:
        """Entries of the audit log, oldest first, that match all of `wanted`.

        `wanted` compares fields of `objectRef` (resource, subresource, namespace, name) and the
        entry's own `verb`: `audit(verb="create", resource="pods", subresource="binding")`.
        """
        entries = []
        for line in self.audit_log.read_bytes().split(b"\n")[:-1]:
            entry = json.loads(line)
            seen = {**entry.get("objectRef", {}), "verb": entry["verb"]}
            if all(seen.get(key) == value for key, value in wanted.items()):
                entries.append(entry)
        return entries

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One blocking request as admin; returns the HTTP status and the decoded JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request.add_header("Content-Type", kind)
        try:
            # So long, for one request may delete thousands of pods on a busy machine.
            with urllib.request.urlopen(request, timeout=300, context=self._tls) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
            # Paths of kinds that are not there are answered in plain words.
            is_json = "json" in error.headers.get("Content-Type", "")
            return error.code, json.loads(body) if is_json else {"message": body.decode()}

    # Inside.

    @property
    def _tls(self) -> ssl.SSLContext:
        return self.ssl_context()

    def _wait(self, what: str, process: Process, ready: Any, seconds: float = 60.0) -> None:
        def ready_or_dead() -> bool:
            if not process.running:
                raise RuntimeError(f"{what} ended at once:\n{process.tail()}")
            return bool(ready())

        wait_until(f"{what} is ready", ready_or_dead, seconds=seconds)

    def _etcd_is_ready(self) -> bool:
        try:
            self._etcd("kv/range", {"key": _b64("a")})
        except OSError:
            return False
        return True

    def _apiserver_is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=self._tls) as got:
                return bool(got.status == 200)
        except OSError:
            return False

    def _etcd(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._etcd_port}/v3/{path}", data=json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def _etcd_command(self) -> list[str | Path]:
        client = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        return [
            binaries.binary("etcd"),
            "--name=test",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_command(self) -> list[str | Path]:
        serving = self.authority.server("apiserver")
        tokens = self.authority.service_account_key()
        front_proxy = Authority(self.folder / "certs" / "front-proxy")
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        return [
            binaries.binary("kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            f"--service-account-issuer={self.url}/",
            f"--service-account-key-file={tokens.certificate}",
            f"--service-account-signing-key-file={tokens.key}",
            "--endpoint-reconciler-type=none",
            f"--requestheader-client-ca-file={front_proxy.certificate}",
            "--requestheader-allowed-names=",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--shutdown-delay-duration=0s",
            "--profiling=false",
        ]


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
