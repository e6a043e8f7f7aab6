"""What Berth relies on of the Kubernetes API, held by the embedded cluster and the real one alike.

Every test runs on both. Of refusals it relies on codes, reasons and a few of the words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import binaries
from tests.cluster.process import wait_until
from tests.cluster.wire import MERGE, STRATEGIC, Answer, Wire

LEASES = "apis/coordination.k8s.io/v1"
EVENTS = "apis/events.k8s.io/v1"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"

_unique = itertools.count(1)


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], "schedulerName": "nobody", **spec},
    }


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def unique(prefix: str) -> str:
    """A name for an object that belongs to no namespace."""
    return f"{prefix}-{next(_unique)}"


def answers_at_last(api: Wire, item: Callable[[str], dict[str, Any]], code: int) -> Answer:
    """Creates a pod, each time under another name, until the server answers so."""
    answer = Answer(0, {})

    def answers() -> bool:
        nonlocal answer
        answer = api.post(api.path("pods"), item(unique("late")))
        return answer.status == code

    wait_until(f"a pod is answered with {code}", answers)
    return answer


REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed"}
REASONS |= {409: "Conflict", 422: "Invalid", 500: ""}


def refused(answer: Answer, code: int, words: str = "", reason: str | None = None) -> None:
    """The answer is a Status, and has these words."""
    assert answer.status == code, answer
    assert answer.body["kind"] == "Status"
    assert answer.body["apiVersion"] == "v1"
    assert answer.body["status"] == "Failure"
    assert answer.body.get("reason", "") == (REASONS[code] if reason is None else reason)
    assert words in answer.body["message"]
    assert answer.body["code"] == code


def test_an_object_is_created_with_identity_and_version(api: Wire) -> None:
    made = api.create("configmaps", config_map("a", key="value"))
    metadata = made["metadata"]
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    assert metadata["namespace"] == api.namespace
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert api.get(api.path("configmaps", "a")).body == made


def test_generate_name_makes_a_name(api: Wire) -> None:
    made = api.create("configmaps", {"metadata": {"generateName": "some-"}})
    assert made["metadata"]["name"].startswith("some-")
    assert len(made["metadata"]["name"]) == len("some-") + 5


def test_a_pod_is_defaulted(api: Wire) -> None:
    item = pod("p")
    del item["spec"]["schedulerName"]
    amounts = {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}}
    item["spec"]["containers"][0]["resources"] = amounts
    made = api.create("pods", item)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Mi"}
    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["generation"] == 1


def test_a_gated_pod_says_so(api: Wire) -> None:
    made = api.create("pods", pod("p", schedulingGates=[{"name": "example.com/wait"}]))
    [condition] = made["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "SchedulingGated"


def test_a_priority_class_gives_the_priority(api: Wire) -> None:
    name = unique("high")
    assert api.post(PRIORITIES, {"metadata": {"name": name}, "value": 1_000}).status == 201
    # The real server's admission learns of classes by a watch: it may be late for both changes.
    made = answers_at_last(api, lambda pod_name: pod(pod_name, priorityClassName=name), 201)
    assert made.body["spec"]["priority"] == 1_000
    system = api.create("pods", pod("s", priorityClassName="system-node-critical"))
    assert system["spec"]["priority"] == 2_000_001_000
    assert api.delete(f"{PRIORITIES}/{name}").status == 200
    answer = answers_at_last(api, lambda pod_name: pod(pod_name, priorityClassName=name), 403)
    refused(answer, 403, f"no PriorityClass with name {name} was found")
    refused(api.post(api.path("pods"), pod("q", priority=7)), 403)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (pod("p", containers=[]), 'Pod "p" is invalid: spec.containers: Required value'),
        (pod("p", containers=[{"name": "main"}]), "spec.containers[0].image: Required value"),
        (pod("Bad_Name"), 'Pod "Bad_Name" is invalid: metadata.name: '),
    ],
)
def test_invalid_pods_are_refused(api: Wire, item: dict[str, Any], words: str) -> None:
    refused(api.post(api.path("pods"), item), 422, words)


def test_bodies_that_make_no_sense_are_refused(api: Wire) -> None:
    path = api.path("configmaps")
    assert api.request("POST", path, b"{bad").body["reason"] == "BadRequest"
    refused(api.post(path, {"metadata": {"name": "c"}, "data": {"a": 5}}), 400, "ConfigMap.data")
    elsewhere = {"metadata": {"name": "c", "namespace": "elsewhere"}}
    refused(api.post(path, elsewhere), 400, "the namespace of the ")


def test_a_config_map_ends_at_one_mebibyte(api: Wire) -> None:
    fits = config_map("fits", key="x" * 1_048_576)
    assert api.post(api.path("configmaps"), fits).status == 201
    answer = api.post(api.path("configmaps"), config_map("big", key="x" * 1_048_577))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert "may not be more than 1048576 bytes" in answer.body["message"]


def test_what_is_not_there(api: Wire) -> None:
    missing = 'pods "none" not found'
    refused(api.get(api.path("pods", "none")), 404, missing)
    refused(api.delete(api.path("pods", "none")), 404, missing)
    refused(api.patch(api.path("pods", "none"), {}), 404, missing)
    refused(api.put(api.path("pods", "none"), pod("none")), 404, missing)
    refused(
        api.get(api.path("leases", "none", group=LEASES)),
        404,
        'leases.coordination.k8s.io "none" not found',
    )
    refused(
        api.post("/api/v1/namespaces/none-such/pods", pod("p")),
        404,
        'namespaces "none-such" not found',
    )
    no_resource = "the server could not find the requested resource"
    refused(api.get("/api/v1/teapots"), 404, no_resource)
    assert api.get("/apis/example.com/v1/teapots").status == 404


def test_what_may_not_be_done(api: Wire) -> None:
    words = "the server does not allow this method on the requested resource"
    api.create("configmaps", config_map("c"))
    refused(api.put(api.path("pods"), pod("p")), 405, words)
    refused(api.patch("/api/v1/nodes", {}), 405, words)
    refused(api.post(api.path("configmaps", "c"), {}), 405, words)
    wrong = api.patch(api.path("configmaps", "c"), {}, content_type="application/foo")
    assert (wrong.status, wrong.body["reason"]) == (415, "UnsupportedMediaType")


def test_a_name_is_taken_once(api: Wire) -> None:
    api.create("pods", pod("p"))
    answer = api.post(api.path("pods"), pod("p"))
    refused(answer, 409, 'pods "p" already exists', "AlreadyExists")


# Writing.


def test_replace_is_optimistic(api: Wire) -> None:
    first = api.create("configmaps", config_map("c", a="1"))
    path = api.path("configmaps", "c")
    second = api.put(path, first | {"data": {"a": "2"}})
    assert second.status == 200
    assert int(second.revision) > int(first["metadata"]["resourceVersion"])
    assert second.body["metadata"]["uid"] == first["metadata"]["uid"]
    refused(api.put(path, first | {"data": {"a": "3"}}), 409, "the object has been modified; ")
    assert api.put(path, config_map("c", a="4")).body["data"] == {"a": "4"}
    refused(api.put(path, config_map("other")), 400, "the name of the object ")


def test_a_write_that_changes_nothing_makes_no_version(api: Wire) -> None:
    first = api.create("configmaps", config_map("c", a="1"))
    path = api.path("configmaps", "c")
    assert api.put(path, first).body == first
    assert api.patch(path, {"data": {"a": "1"}}).body == first


def test_merge_patch(api: Wire) -> None:
    first = api.create("configmaps", config_map("c", labels={"x": "1"}, a="1", b="2"))
    path = api.path("configmaps", "c")
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"labels": {"y": "2"}}}
    patched = api.patch(path, patch, content_type=MERGE).body
    assert patched["data"] == {"b": "2", "c": "3"}
    assert patched["metadata"]["labels"] == {"x": "1", "y": "2"}
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}}
    assert api.patch(path, stale).body["reason"] == "Conflict"
    refused(api.patch(path, {"metadata": {"uid": "1"}}), 422, "field is immutable")


def test_strategic_merge_patch_merges_conditions_by_type(api: Wire) -> None:
    api.create("pods", pod("p"))
    path = api.path("pods", "p/status")
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    other = {"type": "example.com/seen", "status": "True"}
    api.patch(path, {"status": {"conditions": [waits]}}, content_type=STRATEGIC)
    api.patch(path, {"status": {"conditions": [other]}}, content_type=STRATEGIC)
    nominated = {"status": {"nominatedNodeName": "n"}}
    patched = api.patch(path, nominated, content_type=STRATEGIC).body
    found = {each["type"]: each.get("reason") for each in patched["status"]["conditions"]}
    assert found == {"PodScheduled": "Unschedulable", "example.com/seen": None}
    assert patched["status"]["nominatedNodeName"] == "n"
    assert patched["status"]["phase"] == "Pending"
    cleared = api.patch(path, {"status": {"nominatedNodeName": None}}, content_type=STRATEGIC)
    assert "nominatedNodeName" not in cleared.body["status"]
    replaced = api.patch(path, {"status": {"conditions": [other]}}, content_type=MERGE).body
    assert [each["type"] for each in replaced["status"]["conditions"]] == ["example.com/seen"]


def test_a_strategic_merge_patch_may_replace(api: Wire) -> None:
    api.create("pods", pod("p"))
    path = api.path("pods", "p/status")
    old, new = ({"type": f"example.com/{name}", "status": "True"} for name in ("old", "new"))
    api.patch(path, {"status": {"conditions": [old]}}, content_type=STRATEGIC)
    conditions = {"status": {"conditions": [{"$patch": "replace"}, new]}}
    patched = api.patch(path, conditions, content_type=STRATEGIC).body
    assert [each["type"] for each in patched["status"]["conditions"]] == ["example.com/new"]
    path = api.path("pods", "p")
    api.patch(path, {"metadata": {"labels": {"a": "1"}}}, content_type=STRATEGIC)
    labels = {"metadata": {"labels": {"$patch": "replace", "b": "2"}}}
    patched = api.patch(path, labels, content_type=STRATEGIC).body
    assert patched["metadata"]["labels"] == {"b": "2"}


def test_spec_and_status_have_their_own_doors(api: Wire) -> None:
    first = api.create("pods", pod("p"))
    through_spec = api.patch(api.path("pods", "p"), {"status": {"phase": "Failed"}})
    assert through_spec.body["status"]["phase"] == "Pending"
    through_status = api.patch(
        api.path("pods", "p/status"), {"spec": {"priority": 5}, "status": {"phase": "Running"}}
    )
    assert through_status.body["spec"] == first["spec"]
    assert through_status.body["status"]["phase"] == "Running"
    name = unique("door")
    api.create_node(name)
    status = {"status": {"allocatable": {"cpu": "4", "pods": "10"}}}
    assert "allocatable" not in api.patch(f"/api/v1/nodes/{name}", status).body["status"]
    patched = api.patch(f"/api/v1/nodes/{name}/status", status)
    assert patched.body["status"]["allocatable"] == {"cpu": "4", "pods": "10"}


def test_most_of_a_pods_spec_is_fixed(api: Wire) -> None:
    first = api.create("pods", pod("p"))
    path = api.path("pods", "p")
    refused(api.patch(path, {"spec": {"nodeName": "n"}}), 422, 'Pod "p" is invalid: spec: ')
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    changed = api.patch(path, image, content_type=STRATEGIC)
    assert changed.body["spec"]["containers"][0]["image"] == "other"
    assert changed.body["metadata"]["generation"] == 2
    assert first["metadata"]["generation"] == 1


def test_gates_are_removed(api: Wire) -> None:
    api.create("pods", pod("p", schedulingGates=[{"name": "a"}, {"name": "b"}]))
    path = api.path("pods", "p")
    one = api.patch(path, {"spec": {"schedulingGates": [{"name": "b"}]}})
    assert one.body["spec"]["schedulingGates"] == [{"name": "b"}]
    none = api.patch(path, {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in none.body["spec"]


# Deleting.


def test_deletion(api: Wire) -> None:
    made = api.create("configmaps", config_map("c"))
    assert api.delete(api.path("configmaps", "c")).status == 200
    assert api.get(api.path("configmaps", "c")).status == 404
    again = api.create("configmaps", config_map("c"))
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


def bind_and_wait(api: Wire, name: str, node: str) -> None:
    """Binds a pod that is to be given time when it is deleted.

    The real server decides that by its watch cache, which may not know the binding yet.
    """
    api.bind(name, node)
    cached = api.path("pods", name, resourceVersion="0")
    wait_until("the binding is cached", lambda: api.get(cached).body["spec"].get("nodeName"))


def test_a_pod_without_node_is_deleted_at_once(api: Wire) -> None:
    api.create("pods", pod("p"))
    assert api.delete(api.path("pods", "p")).body["kind"] == "Pod"
    assert api.get(api.path("pods", "p")).status == 404


def test_a_pod_on_a_node_is_given_time(api: Wire) -> None:
    node = unique("grace")
    api.create_node(node)
    api.create("pods", pod("p"))
    bind_and_wait(api, "p", node)
    marked = api.delete(api.path("pods", "p")).body
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.get(api.path("pods", "p")).status == 200
    assert api.delete(api.path("pods", "p", gracePeriodSeconds="0")).status == 200
    assert api.get(api.path("pods", "p")).status == 404


def test_deletion_has_preconditions(api: Wire) -> None:
    made = api.create("pods", pod("p"))
    uid = made["metadata"]["uid"]
    refused(api.delete(api.path("pods", "p"), {"preconditions": {"uid": "other"}}), 409, uid)
    assert api.delete(api.path("pods", "p"), {"preconditions": {"uid": uid}}).status == 200


# Binding.


def test_binding_assigns_and_copies(api: Wire) -> None:
    node = unique("bind")
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    api.create_node(node, **{zone: "z1", region: "r1", "other": "x"})
    made = api.create("pods", pod("p", labels={"app": "a"}))
    answer = api.bind("p", node, uid=made["metadata"]["uid"], annotations={"why": "because"})
    assert answer.status == 201
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    bound = api.get(api.path("pods", "p")).body
    assert bound["spec"]["nodeName"] == node
    assert bound["metadata"]["annotations"] == {"why": "because"}
    assert bound["metadata"]["labels"] == {"app": "a", zone: "z1", region: "r1"}
    [condition] = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "reason" not in condition
    assert bound["status"]["phase"] == "Pending"


def test_binding_clears_the_reason_of_the_condition(api: Wire) -> None:
    api.create("pods", pod("p"))
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    status = {"status": {"conditions": [waits]}}
    api.patch(api.path("pods", "p/status"), status, content_type=STRATEGIC)
    assert api.bind("p", "n").status == 201
    [condition] = api.get(api.path("pods", "p")).body["status"]["conditions"]
    assert condition["status"] == "True"
    assert not {"reason", "message"} & condition.keys()


def test_binding_needs_no_node(api: Wire) -> None:
    api.create("pods", pod("p"))
    assert api.bind("p", "there-is-no-such-node").status == 201


def test_binding_happens_once(api: Wire) -> None:
    api.create("pods", pod("p"))
    assert api.bind("p", "first").status == 201
    taken = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node '
    for node in ("first", "second"):
        answer = api.bind("p", node)
        refused(answer, 409, taken + '"first"')


def test_binding_has_a_uid_precondition(api: Wire) -> None:
    uid = api.create("pods", pod("p"))["metadata"]["uid"]
    answer = api.bind("p", "n", uid="another")
    words = f"Precondition failed: UID in precondition: another, UID in object meta: {uid}"
    refused(answer, 409, words)
    assert "nodeName" not in api.get(api.path("pods", "p")).body["spec"]


def test_what_cannot_be_bound(api: Wire) -> None:
    refused(api.bind("none", "n"), 404, 'pods "none" not found')
    api.create("pods", pod("gated", schedulingGates=[{"name": "g"}]))
    api.create("pods", pod("going"))
    bind_and_wait(api, "going", "n")
    api.delete(api.path("pods", "going"))
    refused(api.bind("gated", "n"), 409, "pod gated has non-empty .spec.schedulingGates")
    refused(api.bind("going", "n"), 409, "pod going is being deleted, cannot be assigned to a host")


def test_bindings_that_make_no_sense(api: Wire) -> None:
    api.create("pods", pod("p"))
    refused(api.bind("p", ""), 500, "target.name: Required value")
    binding = {"metadata": {"name": "q"}, "target": {"name": "n"}}
    refused(api.post(api.path("pods", "p/binding"), binding), 400, "does not match name in Binding")
    assert api.get(api.path("pods", "p/binding")).status == 405


# Lists.


def test_lists_are_in_order_and_typed_as_a_whole(api: Wire) -> None:
    for name in ("b", "a", "c"):
        api.create("configmaps", config_map(name, labels={"mine": "1"}))
    answer = api.get(api.path("configmaps", labelSelector="mine"))
    assert answer.body["kind"] == "ConfigMapList"
    assert answer.body["apiVersion"] == "v1"
    assert answer.names == ["a", "b", "c"]
    assert all("kind" not in item and "apiVersion" not in item for item in answer.body["items"])
    everywhere = api.get("/api/v1/configmaps?labelSelector=mine")
    assert set(answer.names) <= set(everywhere.names)
    assert api.get(api.path("configmaps", resourceVersion="0", labelSelector="mine")).status == 200


def test_an_empty_list_is_a_list(api: Wire) -> None:
    for path in (api.path("pods"), api.path("poddisruptionbudgets", group="apis/policy/v1")):
        answer = api.get(path)
        assert answer.body["items"] == []
        assert int(answer.revision) > 0


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("", "abcd"),
        ("tier=web", "ab"),
        ("tier==web", "ab"),
        ("tier!=web", "cd"),
        ("tier", "abc"),
        ("!tier", "d"),
        ("tier in (web, db)", "abc"),
        ("tier notin (web)", "cd"),
        ("tier in (web),size>1", "b"),
        ("size<2", "a"),
        ("tier=web,env!=prod", "b"),
        ("tier=", ""),
    ],
)
def test_label_selectors(api: Wire, selector: str, wanted: str) -> None:
    labels = {
        "a": {"tier": "web", "env": "prod", "size": "1"},
        "b": {"tier": "web", "size": "2"},
        "c": {"tier": "db"},
        "d": {},
    }
    for name, each in labels.items():
        api.create("pods", pod(name, labels=each))
    assert "".join(api.get(api.path("pods", labelSelector=selector)).names) == wanted


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("", "abc"),
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "bc"),
        ("spec.nodeName=", "bc"),
        ("spec.nodeName==n", "a"),
        ("spec.nodeName!=", "a"),
        ("spec.schedulerName=nobody", "ab"),
        ("status.phase=Pending", "abc"),
        ("status.phase!=Pending", ""),
        ("spec.schedulerName=nobody,spec.nodeName=", "b"),
    ],
)
def test_field_selectors(api: Wire, selector: str, wanted: str) -> None:
    for name in "ab":
        api.create("pods", pod(name))
    api.create("pods", pod("c", schedulerName="other"))
    api.bind("a", "n")
    assert "".join(api.get(api.path("pods", fieldSelector=selector)).names) == wanted


def test_selectors_that_cannot_be_read(api: Wire) -> None:
    path = api.path("pods")
    refused(api.get(f"{path}?fieldSelector=spec.colour%3Dred"), 400, ": spec.colour")
    refused(api.get(f"{path}?fieldSelector=spec"), 400, "invalid selector: 'spec'")
    refused(api.get(f"{path}?labelSelector=a%20in"), 400, "unable to parse requirement: found ''")


only_real = pytest.mark.parametrize(
    "api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True
)
"""The embedded one makes no pages: a list is whole whatever its limit."""


@only_real
def test_pages_show_one_moment(api: Wire) -> None:
    for name in "abcde":
        api.create("configmaps", config_map(name))
    first = api.get(api.path("configmaps", limit="2"))
    assert first.names == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    api.delete(api.path("configmaps", "c"))
    api.create("configmaps", config_map("bb"))
    token = first.body["metadata"]["continue"]
    second = api.get(api.path("configmaps", limit="2", **{"continue": token}))
    assert second.names == ["c", "d"]
    assert second.revision == first.revision
    token = second.body["metadata"]["continue"]
    third = api.get(api.path("configmaps", limit="2", **{"continue": token}))
    assert third.names == ["e"]
    assert "continue" not in third.body["metadata"]
    assert api.get(api.path("configmaps")).names == ["a", "b", "bb", "d", "e"]


@only_real
def test_pages_of_forgotten_history_are_gone(api: Wire) -> None:
    for name in "ab":
        api.create("configmaps", config_map(name))
    first = api.get(api.path("configmaps", limit="1"))
    api.create("configmaps", config_map("c"))
    api.compact()
    token = first.body["metadata"]["continue"]
    page = api.get(api.path("configmaps", limit="1", **{"continue": token}))
    assert (page.status, page.body["reason"]) == (410, "Expired")
    assert page.body["message"].startswith("The provided continue parameter is too old")


def test_list_options_that_make_no_sense(api: Wire) -> None:
    path = api.path("pods")
    refused(api.get(f"{path}?resourceVersion=abc"), 400, "invalid resource version: ")
    future = api.get(f"{path}?resourceVersion=99999999")
    assert (future.status, future.body["reason"]) == (504, "Timeout")
    assert future.body["message"].startswith("Timeout: Too large resource version: 99999999")


# Watches.


def _seen(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def _revision(event: dict[str, Any]) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def test_a_watch_continues_a_list(api: Wire) -> None:
    api.create("configmaps", config_map("before"))
    start = api.get(api.path("configmaps")).revision
    with api.watch(api.path("configmaps", resourceVersion=start)) as watch:
        assert watch.status == 200
        made = api.create("configmaps", config_map("a", x="1"))
        changed = api.patch(api.path("configmaps", "a"), {"data": {"x": "2"}}).body
        api.delete(api.path("configmaps", "a"))
        events = watch.take(3)
    assert _seen(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert events[0]["object"] == made
    assert events[1]["object"] == changed
    gone = events[2]["object"]
    assert gone["data"] == {"x": "2"}
    assert int(gone["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


def test_a_watch_without_version_begins_with_what_exists(api: Wire) -> None:
    for name in "ab":
        api.create("configmaps", config_map(name))
    for query in ({}, {"resourceVersion": "0"}):
        with api.watch(api.path("configmaps", **query)) as watch:
            assert sorted(_seen(watch.take(2))) == [("ADDED", "a"), ("ADDED", "b")]
    path = api.path("configmaps", fieldSelector="metadata.name=b")
    with api.watch(path) as watch:
        assert _seen(watch.take(1)) == [("ADDED", "b")]


def test_watches_lose_nothing(api: Wire) -> None:
    """However often a watch is cut, the pieces add up to the whole story."""
    start = api.get(api.path("configmaps")).revision
    wanted = []
    for number in range(30):
        name = f"c{number}"
        api.create("configmaps", config_map(name))
        wanted.append(("ADDED", name))
        if number % 3 == 0:
            api.patch(api.path("configmaps", name), {"data": {"x": "y"}})
            wanted.append(("MODIFIED", name))
        if number % 5 == 0:
            api.delete(api.path("configmaps", name))
            wanted.append(("DELETED", name))
    story: list[tuple[str, str]] = []
    while len(story) < len(wanted):
        with api.watch(api.path("configmaps", resourceVersion=start)) as watch:
            events = watch.take(min(7, len(wanted) - len(story)))
        story += _seen(events)
        start = events[-1]["object"]["metadata"]["resourceVersion"]
    assert story == wanted


def test_objects_come_into_view_and_leave_it(api: Wire) -> None:
    api.create("pods", pod("p", labels={"colour": "red"}))
    start = api.get(api.path("pods")).revision
    unbound = api.path("pods", fieldSelector="spec.nodeName=", resourceVersion=start)
    bound = api.path("pods", fieldSelector="spec.nodeName!=", resourceVersion=start)
    blue = api.path("pods", labelSelector="colour=blue", resourceVersion=start)
    with api.watch(unbound) as without, api.watch(bound) as with_node, api.watch(blue) as in_blue:
        api.bind("p", "n")
        for colour in ("blue", "green"):
            labels = {"metadata": {"labels": {"colour": colour}}}
            api.patch(api.path("pods", "p"), labels)
        [left] = without.take(1)
        came = with_node.take(3)
        painted = in_blue.take(2)
    assert left["type"] == "DELETED"
    assert "nodeName" not in left["object"]["spec"]
    assert [event["type"] for event in came] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert [event["type"] for event in painted] == ["ADDED", "DELETED"]
    assert int(left["object"]["metadata"]["resourceVersion"]) > int(start)


def test_a_watch_ends_at_its_timeout(api: Wire) -> None:
    start = api.get(api.path("pods")).revision
    with api.watch(api.path("pods", resourceVersion=start, timeoutSeconds="1")) as watch:
        assert watch.rest() == []


def test_bookmarks_say_how_far_a_watch_has_seen(api: Wire) -> None:
    start = api.get(api.path("pods")).revision
    path = api.path(
        "pods",
        resourceVersion=start,
        fieldSelector="metadata.name!=out-of-view",
        allowWatchBookmarks="true",
        timeoutSeconds="5",
    )
    with api.watch(path) as watch:
        unseen = int(api.create("pods", pod("out-of-view"))["metadata"]["resourceVersion"])
        *_, mark = watch.until(lambda event: _revision(event) >= unseen)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "Pod"
    assert mark["object"]["apiVersion"] == "v1"
    assert mark["object"]["spec"] == {"containers": None}
    with api.watch(api.path("pods", resourceVersion=str(_revision(mark)))) as watch:
        api.create("pods", pod("after"))
        assert _seen(watch.take(1)) == [("ADDED", "after")]


def test_forgotten_history_is_gone(api: Wire) -> None:
    start = api.create("configmaps", config_map("a"))["metadata"]["resourceVersion"]
    api.create("configmaps", config_map("b"))
    api.create("configmaps", config_map("c"))
    api.compact()
    with api.watch(api.path("configmaps", resourceVersion=start)) as watch:
        assert watch.status == 200
        [event] = watch.rest()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {start} (")
    relisted = api.get(api.path("configmaps")).revision
    with api.watch(api.path("configmaps", resourceVersion=relisted)) as watch:
        api.create("configmaps", config_map("d"))
        assert _seen(watch.take(1)) == [("ADDED", "d")]


# Leases, events, tables.


def test_a_lease_is_held_by_one(api: Wire) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    times = {
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000001Z",
    }
    path = api.path("leases", "l", group=LEASES)
    made = api.create("leases", {"metadata": {"name": "l"}, "spec": spec | times}, group=LEASES)
    assert made["spec"] == spec | times
    renewed = api.put(path, made | {"spec": spec | {"holderIdentity": "b"}})
    assert renewed.body["spec"]["holderIdentity"] == "b"
    refused(
        api.put(path, made), 409, 'leases.coordination.k8s.io "l": the object has been modified'
    )


def test_events_have_two_faces(api: Wire) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
        "reason": "Scheduled",
        "action": "Binding",
        "note": "Successfully assigned",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "berth",
        "reportingInstance": "berth-host",
    }
    made = api.create("events", event, group=EVENTS)
    assert made["apiVersion"] == "events.k8s.io/v1"
    assert made["note"] == "Successfully assigned"
    core = api.get(api.path("events", "e")).body
    unset = ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource")
    assert [made[name] for name in unset] == [None, None, {}]
    assert [core[name] for name in ("firstTimestamp", "lastTimestamp", "source")] == [
        None,
        None,
        {},
    ]
    assert core["apiVersion"] == "v1"
    assert core["involvedObject"]["name"] == "p"
    assert core["message"] == "Successfully assigned"
    assert core["reportingComponent"] == "berth"
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    patched = api.patch(api.path("events", "e", group=EVENTS), {"series": series})
    assert patched.body["series"] == series
    chosen = "involvedObject.name=p,reason=Scheduled"
    assert api.get(api.path("events", fieldSelector=chosen)).names == ["e"]
    start = api.get(api.path("events", group=EVENTS)).revision
    old = {"metadata": {"name": "f"}, "involvedObject": event["regarding"], "message": "m"}
    with api.watch(api.path("events", group=EVENTS, resourceVersion=start)) as watch:
        api.create("events", old | {"reason": "R", "type": "Normal"})
        [seen] = watch.take(1)
    assert seen["object"]["note"] == "m"
    assert seen["object"]["apiVersion"] == "events.k8s.io/v1"


def test_tables_for_people(api: Wire) -> None:
    api.create("pods", pod("p"))
    page = api.get(api.path("pods"), accept=TABLE).body
    assert page["kind"] == "Table"
    columns = [each["name"] for each in page["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    [row] = page["rows"]
    assert row["cells"][:3] == ["p", "0/1", "Pending"]
    assert row["object"]["metadata"]["name"] == "p"


def test_discovery(api: Wire) -> None:
    assert api.get("/version").body["minor"] in ("37", binaries.KUBERNETES.split(".")[1])
    assert api.get("/api").body["versions"] == ["v1"]
    groups = {each["name"] for each in api.get("/apis").body["groups"]}
    assert {"coordination.k8s.io", "events.k8s.io", "policy", "scheduling.k8s.io"} <= groups
    served = {each["name"]: each for each in api.get("/api/v1").body["resources"]}
    assert served["pods/binding"]["kind"] == "Binding"
    assert served["pods"]["shortNames"] == ["po"]
    for path in ("/healthz", "/livez", "/readyz"):
        assert api.get(path).body == "ok"
