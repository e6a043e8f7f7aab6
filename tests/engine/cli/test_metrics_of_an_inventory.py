"""What Prometheus has and refuses, as `berth inventory` writes it and `berth check` says it."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from dsl.analysis import read_inventory
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.schema import CATALOGUE
from engine.cli import main
from engine.cli.inventory import ask_metrics, metrics_of
from engine.configuration.berth import PrometheusSection
from engine.embedded import EmbeddedCluster
from engine.objects import Node, ObjectMeta
from tests.engine.loopback import listening

COMPILER = Compiler()
ZONE = "topology.kubernetes.io/zone"
NODES = [Node(metadata=ObjectMeta(name=f"n{i}", labels={ZONE: f"n{i // 4}"})) for i in range(10)]


def answer(query):
    """Series of as many nodes as the query says; a refusal for what is no PromQL."""
    if query == "vector(1)":
        return 200, series([{}])
    if query.startswith("bad"):
        error = {"status": "error", "errorType": "bad_data", "error": f"parse error in {query}"}
        return 400, error
    label, _, many = query.rpartition("_")
    return 200, series([{label: f"n{i}"} for i in range(int(many or 0))])


def series(labels):
    result = [{"metric": one, "value": [time(), "1"]} for one in labels]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        status, body = answer(query)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        return


@contextmanager
def prometheus():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def url():
    with prometheus() as address:
        yield address


def policy(query, clauses=""):
    return f'metric m = promql "{query}"{clauses}\nscore: m normalize minmax\n'


def specs(text):
    return [spec for plan in COMPILER.compile({"a.policy": text}).plans for spec in plan.metrics]


def found(text, stock):
    return COMPILER.compile({"a.policy": text}, stock=stock).diagnostics


def stock_of(url, text, nodes=NODES):
    metrics = asyncio.run(ask_metrics(PrometheusSection(url=url), specs(text), nodes))
    names = [{"name": one.metadata.name, "labels": {}} for one in nodes]
    saved = json.loads(json.dumps({"inventory": 1, "nodes": names, "metrics": metrics}))
    return read_inventory(saved)


@pytest.mark.parametrize(
    ("query", "clauses", "said"),
    [
        ("bad query", "", ("P403", "Prometheus refuses the query of `m`")),
        ("node_0", "", ("P402", "`m` has no series in Prometheus")),
        ("node_0", " default 0", ("P402", "`m` has no series in Prometheus")),
        ("node_8", "", ("P402", "8 of 10 nodes have a series of `m`")),
        ("other_7", "", ("P402", "none of the 7 series of `m` names a node")),
        ("node_9", "", None),
        ("node_10", "", None),
        ("node_3", " default 0", None),
        ("other_7", " by other", ("P402", "7 of 10 nodes have a series of `m`")),
        ("zone_3", " by zone", None),
        ("zone_2", " by zone", ("P402", "8 of 10 nodes have a series of `m`")),
        ("az_3", " by zone", ("P402", "none of the 3 series of `m` names a zone")),
        ("topology_kubernetes_io_zone_3", " by topology_kubernetes_io_zone", None),
        ("sum_1", " by cluster", None),
        ("sum_2", " by cluster", ("P402", "`m` is by cluster, and has 2 series in Prometheus")),
        ("sum_0", " by cluster", ("P402", "`m` has no series in Prometheus")),
        ("namespace_1", " by namespace", None),
        ("team_2", " by namespace", ("P402", "none of the 2 series of `m` names a namespace")),
        ("pod_1", " by pod", None),
        ("pod_1", " by workload", ("P402", "none of the 1 series of `m` names a workload")),
    ],
)
def test_what_the_server_has(url, query, clauses, said):
    text = policy(query, clauses)
    told = [one for one in found(text, stock_of(url, text)) if one.code not in ("P312", "P314")]
    assert [(one.code, one.message) for one in told] == ([] if said is None else [said])
    for one in told:
        assert one.source.slice(one.span) == "m"
        assert f"the query: {query}" in one.notes


@pytest.mark.parametrize(
    ("by", "help_"),
    [
        ("namespace", "sum by (namespace) (...)"),
        ("workload", "sum by (namespace, workload) (...)"),
        ("namespace, pod", "sum by (namespace, pod) (...)"),
        ("src, dst", "sum by (src, dst) (...)"),
    ],
)
def test_labels_that_a_query_dropped_are_named(url, by, help_):
    value = 'm(node.name, "b")' if by == "src, dst" else "m"
    text = f'metric m = promql "node_4" by {by}\nfilter: node.ready or ({value} ?? 0) > 1\n'
    (one,) = [one for one in found(text, stock_of(url, text, ())) if one.code == "P402"]
    assert one.helps == (f"let the query keep the labels, as in  {help_}",)


def test_a_refusal_is_shown_with_the_words_of_the_server(url):
    text = policy("bad query")
    assert "= note: it says: 400: parse error in bad query" in render(
        found(text, stock_of(url, text))
    )


def test_a_metric_that_no_rule_reads_or_nobody_asked_for_is_left_alone(url):
    stock = stock_of(url, policy("node_0"))
    assert [
        one.code for one in found('metric m = promql "node_0"\nfilter: node.ready\n', stock)
    ] == ["P316"]
    assert found(policy("node_0", " by other"), stock) == ()
    assert found("score: load normalize minmax\n", stock) == ()


def test_a_bundled_metric_is_told_where_it_is_read(url):
    text = "score: load normalize minmax\n"
    query = CATALOGUE["load"].query
    stock = read_inventory(
        {"inventory": 1, "metrics": [{"query": query, "by": CATALOGUE["load"].by}]}
    )
    (one,) = found(text, stock)
    assert (one.code, one.source.slice(one.span)) == ("P402", "load")


def test_which_metrics_are_asked_for(tmp_path):
    path = tmp_path / "a.policy"
    path.write_text(policy("mine") + "metric u = usage cpu\nscore: u normalize minmax\n", "utf-8")
    asked = {one.query for one in metrics_of([tmp_path])}
    assert asked == {"mine", *(one.query for one in CATALOGUE.values())}


# ---- the command line


def check(*args):
    return CliRunner().invoke(main, ["check", *map(str, args)])


def test_check_says_what_the_server_said(url, tmp_path):
    path, saved = tmp_path / "a.policy", tmp_path / "cluster.json"
    path.write_text(policy("bad query"), "utf-8")
    asked = specs(path.read_text("utf-8"))
    metrics = asyncio.run(ask_metrics(PrometheusSection(url=url), asked, ()))
    saved.write_text(json.dumps({"inventory": 1, "metrics": metrics}), "utf-8")
    assert check(path).stdout == ""
    result = check("--inventory", saved, path)
    assert (result.exit_code, result.stdout.count("warning[P403]")) == (0, 1)
    assert check("--inventory", saved, "--deny-warnings", path).exit_code == 1


def test_a_server_that_is_not_there():
    section = PrometheusSection(url="http://127.0.0.1:9")
    with pytest.raises(ConnectionError, match=r"127[.]0[.]0[.]1:9 cannot be asked: "):
        asyncio.run(ask_metrics(section, specs(policy("node_2")), ()))


@pytest.mark.parametrize(
    "metrics", ["{}", "[3]", "[" * 5000, '[{"query": 3}]', '[{"query": "q", "series": "many"}]',
                '[{"query": "q", "nodes": "few"}]']
)  # fmt: skip
def test_an_inventory_that_is_none(tmp_path, metrics):
    path, saved = tmp_path / "a.policy", tmp_path / "c.json"
    path.write_text("filter: node.ready\n", "utf-8")
    saved.write_text(f'{{"inventory": 1, "metrics": {metrics}}}', "utf-8")
    result = check("--inventory", saved, path)
    assert (result.exit_code, "not an inventory" in result.stderr) == (1, True)


def test_policies_without_a_server_to_ask():
    result = CliRunner().invoke(main, ["inventory", "--policies", "x"])
    assert (result.exit_code, "--prometheus-url" in result.stderr) == (2, True)


@pytest.mark.parametrize("config", [True, False])
def test_each_kind_is_listed_once_for_metrics_too(url, tmp_path, config):
    asked = []
    own = {"load": {"promql": "node_1", "by": "cluster"}}
    document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration", "metrics": own}
    document["prometheus"] = {"url": url}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    given = ["--config", str(tmp_path / "config.yaml")] if config else ["--prometheus-url", url]
    (tmp_path / "a.policy").write_text("filter: load < 3\n")

    async def answers(request):
        asked.append(request.path)
        return web.json_response({"metadata": {}, "items": [{"metadata": {"name": "n0"}}]})

    async def main_():
        async with listening(answers) as port:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(EmbeddedCluster(nodes=0, port=port).kubeconfig()))
            words = ["inventory", "--kubeconfig", str(kubeconfig), *given]
            words += ["--policies", str(tmp_path / "a.policy")]
            return await asyncio.to_thread(CliRunner().invoke, main, words)

    result = asyncio.run(main_())
    queries = {one["query"] for one in json.loads(result.stdout)["metrics"]}
    expected = {one.query for one in CATALOGUE.values()}
    assert queries == (expected - {CATALOGUE["load"].query} | {"node_1"} if config else expected)
    assert sorted(asked) == ["/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods"]
