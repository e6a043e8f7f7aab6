"""What `preempt:`, `gang:` and `quota:` mean on one snapshot, as data of `dsl.collective`.

Says who, in which order and at what cost; searches for nothing and decides nothing. Expressions are
looked at through `values`, by columns; a test has the same one by one, by the reference.
"""

from dsl.several.rules import gang_rule, preempt_rule, quota_rule

__all__ = ["gang_rule", "preempt_rule", "quota_rule"]
