"""The types of a snapshot: all that framework, queue and plugins import of the cache.

Each is documented where it is defined. They are for reading: what writes is for the cache alone.
"""

from engine.cache.changes import Cause as Cause
from engine.cache.columns import BoolColumn as BoolColumn
from engine.cache.columns import CodeColumn as CodeColumn
from engine.cache.columns import Dictionary as Dictionary
from engine.cache.columns import FloatColumn as FloatColumn
from engine.cache.columns import IntColumn as IntColumn
from engine.cache.columns import Rows as Rows
from engine.cache.domains import Domains as Domains
from engine.cache.domains import DomainTable as DomainTable
from engine.cache.domains import Eligibility as Eligibility
from engine.cache.domains import Topology as Topology
from engine.cache.nodes import Image as Image
from engine.cache.nodes import Images as Images
from engine.cache.nodes import NodeColumns as NodeColumns
from engine.cache.nodes import Ports as Ports
from engine.cache.nodes import annotation_column as annotation_column
from engine.cache.nodes import label_column as label_column
from engine.cache.otherpods import Nominations as Nominations
from engine.cache.otherpods import OtherPods as OtherPods
from engine.cache.otherpods import QueueTimes as QueueTimes
from engine.cache.pods import Ledger as Ledger
from engine.cache.pods import PodColumns as PodColumns
from engine.cache.podsets import CountedTerm as CountedTerm
from engine.cache.podsets import Tally as Tally
from engine.cache.snapshot import Signals as Signals
from engine.cache.snapshot import Snapshot as Snapshot
from engine.cache.snapshot import Waiting as Waiting
