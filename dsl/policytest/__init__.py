"""The text of a test file becomes tests to run, and answers become verdicts on them.

Parses, looks up attributes, merges fixtures and judges; `engine.policytests` builds the cluster and
asks the policies. Knows no compiler and no cluster.
"""

from typing import Final

from dsl.policytest.judging import Answers as Answers
from dsl.policytest.judging import CannotJudgeError as CannotJudgeError
from dsl.policytest.judging import Failure as Failure
from dsl.policytest.judging import Rejection as Rejection
from dsl.policytest.judging import judge as judge
from dsl.policytest.model import Case as Case
from dsl.policytest.model import Cluster as Cluster
from dsl.policytest.model import Expected as Expected
from dsl.policytest.model import Given as Given
from dsl.policytest.model import Sample as Sample
from dsl.policytest.model import Suite as Suite
from dsl.policytest.model import Thing as Thing
from dsl.policytest.model import Use as Use
from dsl.policytest.model import pod_names as pod_names
from dsl.policytest.reading import read_suite as read_suite

#: A policy or a file that a test names is not there.
NOT_FOUND: Final = "P704"
