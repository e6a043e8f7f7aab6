"""The types of a snapshot: all that framework, queue and plugins import of the cache.

Each is documented where it is defined. They are for reading: what writes is for the cache alone.
"""

from engine.cache.changes import Cause
from engine.cache.columns import BoolColumn, CodeColumn, Dictionary, FloatColumn, IntColumn, Rows
from engine.cache.domains import Domains, DomainTable, Eligibility, Topology
from engine.cache.nodes import Image, Images, NodeColumns, Ports, annotation_column, label_column
from engine.cache.otherpods import Nominations, OtherPods, QueueTimes
from engine.cache.pods import Ledger, PodColumns
from engine.cache.podsets import CountedTerm, Tally
from engine.cache.snapshot import Signals, Snapshot, Waiting

__all__ = [
    "BoolColumn",
    "Cause",
    "CodeColumn",
    "CountedTerm",
    "Dictionary",
    "DomainTable",
    "Domains",
    "Eligibility",
    "FloatColumn",
    "Image",
    "Images",
    "IntColumn",
    "Ledger",
    "NodeColumns",
    "Nominations",
    "OtherPods",
    "PodColumns",
    "Ports",
    "QueueTimes",
    "Rows",
    "Signals",
    "Snapshot",
    "Tally",
    "Topology",
    "Waiting",
    "annotation_column",
    "label_column",
]
