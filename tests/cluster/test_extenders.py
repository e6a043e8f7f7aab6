"""HTTP extenders on a real API server: Berth and kube-scheduler with one configuration of them."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

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


class Cluster:
    def __init__(self, control_plane, namespace, kubectl, folder, kube_scheduler):
        self.api, self.namespace, self.kubectl = control_plane, namespace, kubectl
        self._folder, self._kube_scheduler = folder, kube_scheduler
        self._started = []

    def creates(self, kind, body):
        document = yaml.safe_dump({"apiVersion": "v1", "kind": kind, **body})
        self.kubectl("create", "-f", "-", stdin=document)

    def starts(self, scheduler, *extenders):
        """A scheduler with these extenders."""
        if scheduler == STOCK:
            self._kube_scheduler(extenders=list(extenders))
            return
        folder = self._folder / "berth"
        (folder / "policies").mkdir(parents=True)
        (folder / "policies" / "any.policy").write_text("score: 50\n")
        config = folder / "config.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": scheduler}],
            "extenders": list(extenders),
        }
        config.write_text(yaml.safe_dump(document))
        flags = ("--config", config, "--policies", folder / "policies")
        berth = Berth(self.api, folder, *flags)
        self._started.append(berth)
        berth.start()

    def stop(self):
        for one in self._started:
            assert one.end() == 0

    def get(self, name):
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        status, found = self.api.request("GET", path)
        return found if status == 200 else None

    def node_of(self, name):
        found = self.get(name)
        return None if found is None else found["spec"].get("nodeName")

    def why(self, name):
        """Reason and message of the condition of a pod that waits."""
        for one in self.get(name)["status"].get("conditions", ()):
            if one["type"] == "PodScheduled" and one["status"] == "False":
                return one["reason"], one["message"]
        return None


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, tmp_path, kube_scheduler):
    made = Cluster(control_plane, namespace, kubectl, tmp_path, kube_scheduler)
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
        cluster.creates("Node", node(f"n{n}", {"third": str(n % 3)}))
    one, two = extender(filter=by_thirds), extender(score=the_first_or_last)
    configured = (
        {"urlPrefix": one.url, "filterVerb": "filter"},
        {"urlPrefix": two.url, "prioritizeVerb": "score", "weight": 50, "nodeCacheCapable": True},
    )
    for scheduler in (STOCK, "berth"):
        cluster.starts(scheduler, *configured)
        for n in range(PODS):
            cluster.creates("Pod", pod(f"{scheduler}-{n}", cluster.namespace, scheduler))
        for name in ("never", "fails"):
            cluster.creates("Pod", pod(f"{name}-{scheduler}-1", cluster.namespace, scheduler))
    placed = {}
    for scheduler in (STOCK, "berth"):
        names = [f"{scheduler}-{n}" for n in range(PODS)]
        wait_until("all are bound", lambda names=names: all(map(cluster.node_of, names)))
        placed[scheduler] = [cluster.node_of(name) for name in names]
        for name in ("never", "fails"):
            name = f"{name}-{scheduler}-1"
            wait_until(f"{name} is told", lambda name=name: cluster.why(name))
    assert placed[STOCK] == placed["berth"]
    assert len(set(placed["berth"])) == 6, "three thirds, the first or the last of each"
    reason, message = cluster.why(f"never-{STOCK}-1")
    # Said by versions before 1.37, whose claims are preempted by a plugin's own search.
    message = message.replace("no new claims to deallocate, ", "")
    assert (reason, message) == cluster.why("never-berth-1")
    assert "8 no licence is free" in cluster.why("never-berth-1")[1]
    assert cluster.why(f"fails-{STOCK}-1")[0] == cluster.why("fails-berth-1")[0] == "SchedulerError"
    assert cluster.why("fails-berth-1")[1].endswith(f"{one.url}/filter: it answers HTTP 500")


@pytest.mark.parametrize("scheduler", [STOCK, "berth"])
def test_an_extender_binds_and_says_who_is_evicted(cluster, extender, scheduler):
    def bind(question):
        name, namespace = question["PodName"], question["PodNamespace"]
        meta = {"name": name, "namespace": namespace, "uid": question["PodUID"]}
        body = {"metadata": meta, "target": {"kind": "Node", "name": question["Node"]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        status, answer = cluster.api.request("POST", path, body)
        return {"Error": "" if status == 201 else str(answer)}

    def preempt(question):
        victims = question["NodeNameToMetaVictims"]
        assert sorted(victims) == ["n1", "n2"]
        return {"NodeNameToMetaVictims": {"n2": victims["n2"]}}

    for name in ("n1", "n2"):
        cluster.creates("Node", node(name, cpu="2"))
    made = extender(bind=bind, preempt=preempt)
    verbs = {"bindVerb": "bind", "preemptVerb": "preempt", "nodeCacheCapable": True}
    cluster.starts(scheduler, {"urlPrefix": made.url, **verbs})
    for name in ("a", "b"):
        cluster.creates("Pod", pod(name, cluster.namespace, scheduler, cpu="1500m"))
    wait_until("both are bound", lambda: cluster.node_of("a") and cluster.node_of("b"))
    assert sorted(q["PodName"] for verb, q in made.asked if verb == "bind") == ["a", "b"]
    on_n2 = next(name for name in ("a", "b") if cluster.node_of(name) == "n2")

    important = pod("important", cluster.namespace, scheduler, cpu="1500m")
    important["spec"]["priorityClassName"] = "system-node-critical"
    cluster.creates("Pod", important)
    wait_until("the important one is bound", lambda: cluster.node_of("important"))
    assert cluster.node_of("important") == "n2"
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
        cluster.creates("Node", node(name, **{memory: str(CARD * CARDS)}))
    cards = SharedCards(cluster.api, cluster.namespace)
    made = extender(filter=cards.filter, bind=cards.bind)
    verbs = {"filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": True}
    managed = [{"name": memory, "ignoredByScheduler": False}]
    cluster.starts(scheduler, {"urlPrefix": made.url, **verbs, "managedResources": managed})
    cluster.creates("Pod", pod("other", cluster.namespace, scheduler))
    amounts = {memory: "5"}
    for name in ("a", "b", "c", "d", "left"):  # who is bound is seen by the next question
        wants = pod(name, cluster.namespace, scheduler)
        wants["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        cluster.creates("Pod", wants)
        if name != "left":
            wait_until(f"{name} is bound", lambda name=name: cluster.node_of(name))
    wait_until("the fifth is told", lambda: cluster.why("left"))
    reason, message = cluster.why("left")
    assert reason == "Unschedulable"
    assert message.startswith("0/2 nodes are available: 2 no card has so much. ")
    assert [q["PodName"] for verb, q in made.asked if verb == "bind"] == ["a", "b", "c", "d"]
    wait_until("who wants no card is bound", lambda: cluster.node_of("other"))
    assert "other" not in {q["Pod"]["metadata"]["name"] for verb, q in made.asked if verb != "bind"}
    cluster.kubectl("delete", "pod", "a", "--namespace", cluster.namespace)
    wait_until("its place is taken", lambda: cluster.node_of("left"))
