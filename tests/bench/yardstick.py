"""What a decision costs at the least: bare columns, one key a node, a closure for one row.

No queue, no plugins, no objects: least and balanced allocation over requests of cpu and memory,
written out for these. Berth is measured against it in the same run, on the same machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

GIB = 1 << 30
LOG = 1 << 16
FEW_ROWS = 12
SAME_FOR_ALL = 500.0
ALL = slice(None)
COLUMNS = ("cpu", "memory", "held_cpu", "held_memory", "pods", "without", "log")

Ints = NDArray[np.int64]
Keys = NDArray[np.int32]
Floats = NDArray[np.float64]


class Bare:
    """A cluster of two kinds of nodes, some of them in use."""

    def __init__(self, nodes: int) -> None:
        chance = np.random.default_rng(1)
        odd = np.arange(nodes) % 2
        self.nodes = nodes
        self.cpu: Ints = np.where(odd, 32_000, 16_000)
        self.memory: Ints = np.where(odd, 128 * GIB, 64 * GIB)
        self.held_cpu: Ints = chance.integers(0, 4000, nodes)
        self.held_memory: Ints = chance.integers(0, 8 * GIB, nodes)
        self.pods: Ints = np.full(nodes, 5)
        self.of_cpu, self.of_memory = self.cpu.astype(np.float64), self.memory.astype(np.float64)
        held = self.held_cpu.astype(np.float64), self.held_memory.astype(np.float64)
        self.without = self._evenness(*held)
        self._buffers, self._other = _buffers(nodes), np.empty(nodes)
        self.log = np.zeros(LOG, np.int64)
        self.generation = 0
        self.cells = {name: memoryview(getattr(self, name)) for name in COLUMNS}

    def _evenness(self, cpu: Floats, memory: Floats, rows: Any = ALL) -> Floats:
        """How evenly two amounts use a node, 0..100; both are written to."""
        cpu /= self.of_cpu[rows]
        np.minimum(cpu, 1.0, out=cpu)
        memory /= self.of_memory[rows]
        np.minimum(memory, 1.0, out=memory)
        cpu -= memory
        np.abs(cpu, out=cpu)
        cpu *= -0.5
        cpu += 1.0
        cpu *= 100.0
        return np.trunc(cpu, out=cpu)

    def keys(self, cpu: int, memory: int, rows: Any = ALL) -> Keys:
        """The total score of each row, -1 where there is no room."""
        a, b, wide, fits, also = self._buffers if rows is ALL else _buffers(len(rows))
        np.subtract(self.cpu[rows], self.held_cpu[rows], out=wide)
        np.greater_equal(wide, cpu, out=fits)
        np.subtract(wide, cpu, out=a)
        np.subtract(self.memory[rows], self.held_memory[rows], out=wide)
        np.greater_equal(wide, memory, out=also)
        fits &= also
        np.subtract(wide, memory, out=b)
        np.less(self.pods[rows], 110, out=also)
        fits &= also
        total = _least(a, self.of_cpu[rows])
        total += _least(b, self.of_memory[rows])
        total *= 0.5
        np.floor(total, out=total)
        b, c = (self._buffers[1], self._other) if rows is ALL else (b, np.empty(len(rows)))
        np.add(self.held_cpu[rows], cpu, out=b)
        np.add(self.held_memory[rows], memory, out=c)
        even = self._evenness(b, c, rows)
        even -= self.without[rows]
        even += 50.0
        even *= 0.5
        np.trunc(even, out=even)
        total += even
        total += 50.0 + SAME_FOR_ALL
        np.logical_not(fits, out=fits)
        total[fits] = -1.0
        return total.astype(np.int32)

    def key_of(self, cpu: int, memory: int) -> Callable[[int], int]:
        """The same for a single row."""
        all_cpu, all_memory, held_cpu, held_memory, pods, without, _ = self.cells.values()

        def key(row: int) -> int:
            c, m = all_cpu[row], all_memory[row]
            hc, hm = held_cpu[row], held_memory[row]
            if c - hc < cpu or m - hm < memory or pods[row] >= 110:
                return -1
            a, b = (c - hc - cpu) * 100 // c, (m - hm - memory) * 100 // m
            x, y = (hc + cpu) / c, (hm + memory) / m
            apart = x - y if x > y else y - x
            even = (50 + int((1 - apart / 2) * 100) - int(without[row])) // 2
            return (a + b) // 2 + 550 + even

        return key

    def place(self, row: int, cpu: int, memory: int) -> None:
        """Counts a pod on the row, and logs it."""
        all_cpu, all_memory, held_cpu, held_memory, pods, without, log = self.cells.values()
        held_cpu[row] += cpu
        held_memory[row] += memory
        pods[row] += 1
        x, y = held_cpu[row] / all_cpu[row], held_memory[row] / all_memory[row]
        apart = x - y if x > y else y - x
        without[row] = int((1 - apart / 2) * 100)
        log[self.generation % LOG] = row
        self.generation += 1

    def changed(self, since: int) -> Ints:
        """The rows that changed; some maybe more than once."""
        start, end = since % LOG, self.generation % LOG
        if start <= end:
            return self.log[start:end]
        return np.concatenate((self.log[start:], self.log[:end]))


def _buffers(count: int) -> tuple[Floats, Floats, Ints, Any, Any]:
    return (
        np.empty(count),
        np.empty(count),
        np.empty(count, np.int64),
        np.empty(count, np.bool_),
        np.empty(count, np.bool_),
    )


def _least(free: Floats, of: Floats) -> Floats:
    """Hundredths that stay free; `free` is written to."""
    free *= 100.0
    free /= of
    np.floor(free, out=free)
    return np.maximum(free, 0.0, out=free)


def identical(nodes: int, pods: int) -> float:
    """Seconds a decision."""
    bare, cpu, memory = Bare(nodes), 50, 64 << 20
    began = time.thread_time()
    keys, key_of = bare.keys(cpu, memory), bare.key_of(cpu, memory)
    cells = memoryview(keys)
    for _ in range(pods):
        row = int(keys.argmax())
        bare.place(row, cpu, memory)
        cells[row] = key_of(row)
    return (time.thread_time() - began) / pods


def new_class(nodes: int, pods: int) -> float:
    """Seconds a decision."""
    bare = Bare(nodes)
    began = time.thread_time()
    for i in range(pods):
        cpu, memory = 50 + i, (64 + i) << 20
        bare.place(int(bare.keys(cpu, memory).argmax()), cpu, memory)
    return (time.thread_time() - began) / pods


def hundred_classes(nodes: int, pods: int) -> float:
    """Seconds a decision, with classes in an order by chance that are known already."""
    bare, chance = Bare(nodes), random.Random(3)
    classes = []
    for i in range(100):
        cpu, memory = 50 + i, (64 + i) << 20
        classes.append([cpu, memory, bare.keys(cpu, memory), bare.generation])
    order = [chance.randrange(100) for _ in range(pods)]
    began = time.thread_time()
    for which in order:
        cpu, memory, keys, since = classes[which]
        rows = bare.changed(since)
        if len(rows) <= FEW_ROWS:
            key_of = bare.key_of(cpu, memory)
            for row in set(rows.tolist()):
                keys[row] = key_of(row)
        else:
            keys[rows] = bare.keys(cpu, memory, rows)
        classes[which][3] = bare.generation
        bare.place(int(keys.argmax()), cpu, memory)
    return (time.thread_time() - began) / pods


WORKLOADS: dict[str, Callable[[int, int], float]] = {
    "identical": identical,
    "100 classes": hundred_classes,
    "new class": new_class,
}
