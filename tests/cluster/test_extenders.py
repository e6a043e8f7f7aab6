"""HTTP extenders on a real API server: Berth and kube-scheduler with one configuration of them."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tests.cluster.berth import node
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

STOCK = "default-scheduler"
PODS = 12


class Extender:
    """Answers POSTs by functions of the question, one a verb, in threads."""

    def __init__(self, **verbs):
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                verb, question = self.path.rpartition("/")[2], json.loads(body)
                asked.append((verb, question))
                status, answer = 200, verbs[verb](question)
                if isinstance(answer, int):
                    status, answer = answer, None
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Extended(Cluster):
    """Nodes, and schedulers with extenders."""

    def __init__(self, kube_scheduler, *how):
        super().__init__(*how)
        self._kube_scheduler = kube_scheduler

    def extends(self, scheduler, *extenders):
        """A scheduler with these extenders."""
        if scheduler == STOCK:
            self._kube_scheduler(extenders=list(extenders))
            return
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": scheduler}],
            "extenders": list(extenders),
        }
        config = self.folder / "config.yaml"
        config.write_text(yaml.safe_dump(document))
        self.rules("--config", config, any="score: 50\n")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path, kube_scheduler):
    made = Extended(kube_scheduler, control_plane, namespace, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def extender():
    started = []

    def start(**verbs):
        started.append(Extender(**verbs))
        return started[-1]

    yield start
    for one in started:
        one.close()


def number(question):
    return int(question["Pod"]["metadata"]["name"].rpartition("-")[2])


def by_thirds(question):
    """Whole nodes in, those of a third by a label of theirs out; some pods are refused."""
    if question["Pod"]["metadata"]["name"].startswith("fails"):
        return 500
    items = question["Nodes"]["items"]
    assert all(one["status"]["nodeInfo"] is not None for one in items), "nodes are whole"
    assert question["Pod"]["spec"]["terminationGracePeriodSeconds"] == 0, "pods are whole"
    if question["Pod"]["metadata"]["name"].startswith("never"):
        names = sorted(one["metadata"]["name"] for one in items)
        return {
            "Nodes": {"items": []},
            "FailedNodes": dict.fromkeys(names[1:], "no licence is free"),
            "FailedAndUnresolvableNodes": {names[0]: "it has no licences"},
        }
    third = str(number(question) % 3)
    kept = [one for one in items if one["metadata"]["labels"]["third"] == third]
    return {"nodes": {"items": kept}}


def the_first_or_last(question):
    """Names in, ten points for one of them out."""
    names = sorted(question["NodeNames"])
    best = names[0] if number(question) % 2 else names[-1]
    return [{"Host": name, "Score": 10 if name == best else 0} for name in names]


def test_both_put_pods_where_extenders_want_them_and_say_the_same(cluster, extender):
    for n in range(9):
        cluster.node(f"n{n}", {"third": str(n % 3)})
    one, two = extender(filter=by_thirds), extender(score=the_first_or_last)
    configured = (
        {"urlPrefix": one.url, "filterVerb": "filter"},
        {"urlPrefix": two.url, "prioritizeVerb": "score", "weight": 50, "nodeCacheCapable": True},
    )
    for scheduler in (STOCK, "berth"):
        cluster.extends(scheduler, *configured)
        for n in range(PODS):
            cluster.pod(f"{scheduler}-{n}", scheduler=scheduler)
        for name in ("never", "fails"):
            cluster.pod(f"{name}-{scheduler}-1", scheduler=scheduler)
    placed = {}
    for scheduler in (STOCK, "berth"):
        placed[scheduler] = cluster.placed(*[f"{scheduler}-{n}" for n in range(PODS)])
    assert placed[STOCK] == placed["berth"]
    assert len(set(placed["berth"])) == 6, "three thirds, the first or the last of each"
    reason, message = cluster.refused(f"never-{STOCK}-1")
    # Said by versions before 1.37, whose claims are preempted by a plugin's own search.
    message = message.replace("no new claims to deallocate, ", "")
    assert (reason, message) == cluster.refused("never-berth-1")
    assert "8 no licence is free" in cluster.refused("never-berth-1")[1]
    assert (
        cluster.refused(f"fails-{STOCK}-1")[0]
        == cluster.refused("fails-berth-1")[0]
        == "SchedulerError"
    )
    assert cluster.refused("fails-berth-1")[1].endswith(f"{one.url}/filter: it answers HTTP 500")


@pytest.mark.parametrize("scheduler", [STOCK, "berth"])
def test_an_extender_binds_and_says_who_is_evicted(cluster, extender, scheduler):
    def bind(question):
        name, namespace = question["PodName"], question["PodNamespace"]
        meta = {"name": name, "namespace": namespace, "uid": question["PodUID"]}
        body = {"metadata": meta, "target": {"kind": "Node", "name": question["Node"]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        status, answer = cluster.plane.request("POST", path, body)
        return {"Error": "" if status == 201 else str(answer)}

    def preempt(question):
        victims = question["NodeNameToMetaVictims"]
        assert sorted(victims) == ["n1", "n2"]
        return {"NodeNameToMetaVictims": {"n2": victims["n2"]}}

    for name in ("n1", "n2"):
        cluster.node(name, cpu="2")
    made = extender(bind=bind, preempt=preempt)
    verbs = {"bindVerb": "bind", "preemptVerb": "preempt", "nodeCacheCapable": True}
    cluster.extends(scheduler, {"urlPrefix": made.url, **verbs})
    for name in ("a", "b"):
        cluster.pod(name, scheduler=scheduler, cpu="1500m")
    cluster.placed("a", "b")
    assert sorted(q["PodName"] for verb, q in made.asked if verb == "bind") == ["a", "b"]
    on_n2 = next(name for name in ("a", "b") if cluster.node_of(name) == "n2")

    critical = {"priorityClassName": "system-node-critical"}
    there = cluster.goes("important", scheduler=scheduler, spec=critical, cpu="1500m")
    assert there == "n2"
    assert cluster.get(on_n2) is None


CARD, CARDS = 8, 2


class SharedCards:
    """Memory of graphics cards, given away by an extender that keeps it in annotations of pods."""

    def __init__(self, api, namespace):
        self._api, self._pods = api, f"/api/v1/namespaces/{namespace}/pods"

    def _free(self, node):
        """The first card of a node with room for a pod of 5, if any."""
        _, found = self._api.request("GET", self._pods)
        on = [one["metadata"].get("annotations", {}) for one in found["items"]]
        used = [one["card"] for one in on if one.get("node") == node]
        return next((card for card in range(CARDS) if used.count(str(card)) * 5 + 5 <= CARD), None)

    def filter(self, question):
        assert question["Nodes"] is None
        fits = {name: self._free(name) is not None for name in question["NodeNames"]}
        left = [name for name in fits if fits[name]]
        return {
            "Nodes": {"metadata": {}, "items": [node(name) for name in left] or None},
            "NodeNames": left,
            "FailedNodes": {name: "no card has so much" for name in fits if not fits[name]},
            "Error": "",
        }

    def bind(self, question):
        """First the pod is written to, then bound."""
        path, node = f"{self._pods}/{question['PodName']}", question["Node"]
        notes = {"card": str(self._free(node)), "node": node}
        assert self._api.request("PATCH", path, {"metadata": {"annotations": notes}})[0] == 200
        meta = {"name": question["PodName"], "uid": question["PodUID"]}
        body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
        return (
            {"Error": ""} if self._api.request("POST", f"{path}/binding", body)[0] == 201 else 500
        )


@pytest.mark.parametrize("scheduler", [STOCK, "berth"])
def test_an_extender_gives_away_parts_of_cards(cluster, extender, scheduler):
    memory = "example.com/card-memory"
    for name in ("n1", "n2"):
        cluster.node(name, **{memory: str(CARD * CARDS)})
    cards = SharedCards(cluster.plane, cluster.namespace)
    made = extender(filter=cards.filter, bind=cards.bind)
    verbs = {"filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": True}
    managed = [{"name": memory, "ignoredByScheduler": False}]
    cluster.extends(scheduler, {"urlPrefix": made.url, **verbs, "managedResources": managed})
    cluster.pod("other", scheduler=scheduler)
    amounts = {memory: "5"}
    for name in ("a", "b", "c", "d", "left"):  # who is bound is seen by the next question
        wants = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
        cluster.pod(name, scheduler=scheduler, spec={"containers": [wants]})
        if name != "left":
            cluster.placed(name)
    reason, message = cluster.refused("left")
    assert reason == "Unschedulable"
    assert message.startswith("0/2 nodes are available: 2 no card has so much. ")
    assert [q["PodName"] for verb, q in made.asked if verb == "bind"] == ["a", "b", "c", "d"]
    cluster.placed("other")
    assert "other" not in {q["Pod"]["metadata"]["name"] for verb, q in made.asked if verb != "bind"}
    cluster.delete("a")
    cluster.placed("left")
