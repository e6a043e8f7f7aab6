"""State: the pods that wait, in order, and what would wake them."""

from engine.queue.hooks import QueueHooks
from engine.queue.queued import NO_PLUGINS, QueuedPod, SubQueue
from engine.queue.scheduling_queue import SchedulingQueue

__all__ = ["NO_PLUGINS", "QueueHooks", "QueuedPod", "SchedulingQueue", "SubQueue"]
