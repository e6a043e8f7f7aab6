"""What `preempt:`, `gang:` and `quota:` mean on one snapshot, as data of `dsl.collective`.

Says who, in which order and at what cost; searches for nothing and decides nothing. Expressions are
looked at through `values`: by columns in a scheduler, one by one in the reference, with the same
steps around them.
"""

from dsl.several.rules import gang_rule, preempt_rule, quota_rule
from dsl.several.values import ByReference, Columns, Values

__all__ = ["ByReference", "Columns", "Values", "gang_rule", "preempt_rule", "quota_rule"]
