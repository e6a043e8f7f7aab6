"""State: the pods that wait, in order, and what would wake them."""

from engine.queue.queued import QueuedPod, SubQueue
from engine.queue.rules import Rules
from engine.queue.scheduling_queue import SchedulingQueue

__all__ = ["QueuedPod", "Rules", "SchedulingQueue", "SubQueue"]
