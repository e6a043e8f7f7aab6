"""What `preempt:`, `gang:` and `quota:` mean on one snapshot, as functions without effects.

The statements configure engines; an engine that runs asks here: `rules` gives what a statement
comes to for a pod (`dsl.collective`), `preemption.search` finds victims, `gangs.plan` places a
whole gang, `quotas` says what is over. Expressions are looked at through `values`: by columns in
a scheduler, one by one in the reference, with the same steps around them.
"""

from dsl.engines.rules import gang_rule, preempt_rule, quota_rule
from dsl.engines.values import ByReference, Columns, Values

__all__ = ["ByReference", "Columns", "Values", "gang_rule", "preempt_rule", "quota_rule"]
