"""The text of a test file becomes tests to run.

Parses, looks up attributes and merges fixtures; `engine.policytests` builds the cluster, asks the
policies and judges.
"""

from typing import Final

from dsl.policytest.model import Case as Case
from dsl.policytest.model import Cluster as Cluster
from dsl.policytest.model import Expected as Expected
from dsl.policytest.model import Given as Given
from dsl.policytest.model import Sample as Sample
from dsl.policytest.model import Suite as Suite
from dsl.policytest.model import Thing as Thing
from dsl.policytest.model import Use as Use
from dsl.policytest.model import listed as listed
from dsl.policytest.model import pod_names as pod_names
from dsl.policytest.reading import read_suite as read_suite

#: A policy or a file that a test names is not there.
NOT_FOUND: Final = "P704"
