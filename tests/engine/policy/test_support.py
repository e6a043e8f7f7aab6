"""What a running scheduler refuses at load although the policy is right."""

import pytest

from dsl.compiler import Compiler
from engine.policy.support import unsupported

COMPILER = Compiler()


def reasons(text):
    result = COMPILER.compile({"a.policy": text})
    assert result.ok, result.diagnostics
    return [one.message for plan in result.plans for one in unsupported(plan)]


@pytest.mark.parametrize(
    "text",
    [
        "metric x = annotation load stale 5m\nscore: 100 - x*100 missing 0\n",
        'metric x = promql "q" by zone\nprefer: least x/max(x)\n',
        'metric x = promql "q" by cluster\ngate: (x ?? 0) < 1\nprefilter: x is present\n',
        'metric x = promql "q" by namespace\ngate: (x ?? 0) < 1\n',
        'metric x = promql "q" by a, b\nscore: x(node.name, "c")\n',
        'metric x = promql "q" by namespace, workload\nscore: x missing 0\n',
        'metric x = promql "q" by pod\nscore: sum(x over node.pods) + (x ?? 0)\n',
        "score: load normalize minmax\n",
        "filter: node.eligible and pod.image in node.images\n",
        "score: node.missing_image_bytes normalize minmax reverse\n",
        "filter: count(node.pods where it.ready and it.bound) < 3\n",
        "sort: pod.priority desc, pod.queued_at\n",
        "mode: off\nfilter: node.ready\n",
        "metric x = usage cpu\nscore: x/node.cpu.capacity*100\n",
        'metric x = object "a/b" field "c" by name\nscore: x\n',
        "score: count(node.nominated)\n",
        "filter: count(queue.pods) < node.pods.free\n",
        "filter: pod.attempts < node.pods.free\n",
        "filter: now - node.heartbeat < 1m\n",
    ],
)
def test_what_it_serves(text):
    assert reasons(text) == []
