"""Rules over the nodes of a zone, over namespaces of other pods and over different values: what
wakes the pods that they rejected or held, through queue, cache and scheduler."""

from __future__ import annotations

from engine.objects import Namespace, from_builtins
from engine.queue import SubQueue
from tests.builders import changed, make_node, pod_object
from tests.engine.policy.builders import policies
from tests.engine.test_scheduler import World

ZONE = "topology.kubernetes.io/zone"


def node(name, zone, *, unschedulable=False):
    return make_node(name, labels={ZONE: zone}, unschedulable=unschedulable)


def namespace(name, tenant):
    return from_builtins(Namespace, {"metadata": {"name": name, "labels": {"tenant": tenant}}})


async def later(world):
    """After any backoff."""
    await world.turn(after=30.0)


async def test_a_pod_wakes_when_another_node_of_the_zone_is_there():
    rule = "filter: count(zone.nodes where not node.unschedulable) >= 2\n"
    world = World({"z.policy": rule}, nodes=())
    nodes = world.handlers.nodes
    nodes.on_add(node("n1", "z1"))
    nodes.on_add(node("n2", "z2"))
    world.comes()
    await later(world)
    assert world.where() is SubQueue.UNSCHEDULABLE
    nodes.on_add(node("n3", "z3"))
    await later(world)
    assert world.where() is SubQueue.UNSCHEDULABLE
    # That the label of one node changes makes the other one fit, too.
    nodes.on_update(node("n3", "z3"), node("n3", "z2", unschedulable=True))
    await later(world)
    assert world.where() is SubQueue.UNSCHEDULABLE
    nodes.on_update(node("n3", "z2", unschedulable=True), node("n3", "z2"))
    await later(world)
    assert world.assigned()[0] in ("n2", "n3")
    nodes.on_delete(node("n3", "z2"))
    world.comes("q")
    await later(world)
    assert world.where("q") is SubQueue.UNSCHEDULABLE


async def test_a_pod_wakes_when_the_namespace_of_another_pod_changes():
    rule = "filter: all(node.pods where it.namespace.label[tenant] == namespace.label[tenant])\n"
    world = World({"t.policy": rule})
    namespaces = world.handlers.namespaces
    namespaces.on_add(namespace("default", "a"))
    namespaces.on_add(namespace("other", "b"))
    world.handlers.pods.on_add(pod_object("there", namespace="other", node="n1"))
    world.comes()
    await later(world)
    assert world.where() is SubQueue.UNSCHEDULABLE
    told = len(world.decisions)
    namespaces.on_update(namespace("nobody", "b"), namespace("nobody", "a"))
    await later(world)
    assert len(world.decisions) == told, "no pod of that namespace is on a node"
    namespaces.on_update(namespace("other", "b"), namespace("other", "a"))
    await later(world)
    assert world.assigned() == ("n1", True)


async def test_a_gate_over_different_jobs_opens_when_one_of_them_is_done():
    others = "cluster.pods where it.label[job] != pod.label[job]"
    rule = f"gate: distinct(it.label[job] over {others}) < 2\n"
    world = World({"j.policy": rule})
    worlds = policies(world.framework)[0]._worlds
    worlds.source = lambda: world.cache.snapshot(world.clock.time(), world.samples)
    pods = world.handlers.pods
    running = [pod_object(f"r{at}", node="n1", labels={"job": job}) for at, job in enumerate("aab")]
    for one in running:
        pods.on_add(one)
    world.comes("a", labels={"job": "a"})
    world.comes("c", labels={"job": "c"})
    await later(world)
    assert world.assigned("a") == ("n1", True)
    assert world.where("c") is SubQueue.GATED
    pods.on_delete(running[0])
    await later(world)
    assert world.where("c") is SubQueue.GATED
    pods.on_update(running[2], changed(running[2], status={"phase": "Succeeded"}))
    await later(world)
    assert world.assigned("c") == ("n1", True)
