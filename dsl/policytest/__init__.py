"""The text of a test file becomes tests to run, and answers become verdicts on them.

Parses, looks up attributes, merges fixtures and judges; `engine.policytests` builds the cluster and
asks the policies. Knows no compiler and no cluster.
"""

from typing import Final

from dsl.policytest.judging import (
    Answers,
    CannotJudgeError,
    Failure,
    Rejection,
    judge,
)
from dsl.policytest.model import (
    Case,
    Cluster,
    Expected,
    Given,
    Sample,
    Setting,
    Suite,
    Thing,
    Use,
    pod_names,
)
from dsl.policytest.reading import read_suite

__all__ = [
    "NOT_FOUND",
    "Answers",
    "CannotJudgeError",
    "Case",
    "Cluster",
    "Expected",
    "Failure",
    "Given",
    "Rejection",
    "Sample",
    "Setting",
    "Suite",
    "Thing",
    "Use",
    "judge",
    "pod_names",
    "read_suite",
]

#: A policy or a file that a test names is not there.
NOT_FOUND: Final = "P704"
