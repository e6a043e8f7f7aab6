"""A volume that was meant for a pod and is not bound to its claim after all helps another."""

from __future__ import annotations

import asyncio

import pytest

from engine.objects.storage import StorageClass
from engine.queue import SubQueue
from tests.builders import pod_object
from tests.engine.plugins.volumes.builders import claim, put, volume
from tests.engine.test_scheduler import World, until


def with_claim(world, name, **labels):
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    pod = pod_object(name, labels=labels, spec={"volumes": volumes})
    world.handlers.pods.on_add(pod)
    return pod


@pytest.mark.parametrize("how", ["refused", "deleted", "not patched", "deleted and not patched"])
async def test_who_found_no_volume_is_tried_when_one_is_given_back(how):
    held = "permit: pod.label hold -> wait 5s until count(node.pods) > 9, then reject\n"
    world = World({"p.policy": held})
    put(world.cache, StorageClass, "late", volumeBindingMode="WaitForFirstConsumer")
    volume(world.cache, "disk")
    claim(world.cache, "first")
    claim(world.cache, "second")
    patched = asyncio.get_running_loop().create_future()
    world.edge.patch_answers.append(patched)
    first = with_claim(world, "first", **({} if "patched" in how else {"hold": "yes"}))
    world.scheduler.work()
    with_claim(world, "second")
    world.scheduler.work()
    assert world.where("second") is SubQueue.UNSCHEDULABLE
    if "deleted" in how:
        world.handlers.pods.on_delete(first)
        world.scheduler.work()
    world.clock.advance(6.0)
    world.scheduler.work()
    patched.set_result("the server says no")
    await until(lambda: world.where("second") is not SubQueue.UNSCHEDULABLE)


async def test_a_pod_waits_for_no_volume_on_a_node_that_is_gone():
    world = World(nodes=("n1", "n2"))
    put(
        world.cache, StorageClass, "late", provisioner="x", volumeBindingMode="WaitForFirstConsumer"
    )
    claim(world.cache, "data")
    with_claim(world, "data")
    await world.turn()
    for _ in range(9):  # until it waits
        await asyncio.sleep(0)
    chosen = world.cache.node_of("uid-default-data")
    assert chosen is not None
    world.handlers.nodes.on_delete(world.cache.nodes.node(world.cache.nodes.row(chosen)))
    await world.turn(after=1.0)
    assert world.where("data") is SubQueue.BACKOFF
    await world.turn(after=10.0)
    assert world.cache.node_of("uid-default-data") not in (None, chosen)
